#include "server/openai/neutral_fields.h"

#include <array>
#include <string>

namespace runnel {
namespace {

constexpr JsonLimits kLimits{16, 16, 2};  // for the values below

struct NeutralField {
  const char* key;
  const char* value;  // the value that changes nothing, as JSON
};

// Fields of OpenAI, vLLM, llama-server and Text Generation Inference.
constexpr std::array kNeutral = {
    NeutralField{"repeat_penalty", "1"},
    NeutralField{"length_penalty", "1"},
    NeutralField{"no_repeat_ngram_size", "0"},
    NeutralField{"typical_p", "1"},
    NeutralField{"mirostat", "0"},
    NeutralField{"min_tokens", "0"},
    NeutralField{"use_beam_search", "false"},
    NeutralField{"stop_token_ids", "[]"},
    NeutralField{"bad_words", "[]"},
    NeutralField{"include_stop_str_in_output", "false"},
    NeutralField{"skip_special_tokens", "true"},
    NeutralField{"spaces_between_special_tokens", "true"},
    NeutralField{"suffix", "\"\""},
};

}  // namespace

void read_neutral(RequestFields& fields) {
  for (const NeutralField& field : kNeutral) {
    const Json* const found = fields.find(field.key);
    if (found == nullptr || *found == parse_json(field.value, field.key, kLimits).value()) continue;
    fields.refuse(field.key,
                  std::string("is not supported here; leave it out, or send ") + field.value);
  }
}

}  // namespace runnel
