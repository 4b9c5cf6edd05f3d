#include "models/template/gguf_template.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace runnel {
namespace {

// The texts of a vocabulary may have any bytes, but templates cut texts between characters.
TEST(GgufTemplate, TakesTokensThatAreText) {
  Json metadata = {{"tokenizer.chat_template", "{{ bos_token }}"},
                   {"tokenizer.ggml.bos_token_id", 0U},
                   {"tokenizer.ggml.eos_token_id", 1U},
                   {"tokenizer.ggml.unknown_token_id", 2U},
                   {"tokenizer.ggml.padding_token_id", 9U}};
  metadata["tokenizer.ggml.tokens"] = {"<s>", "\xf0", "\u00e9"};
  const std::map<std::string, std::string> expected = {{"bos_token", "<s>"},
                                                       {"unk_token", "\u00e9"}};
  EXPECT_EQ(gguf_template(metadata).tokens, expected);
}

}  // namespace
}  // namespace runnel
