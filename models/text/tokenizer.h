// Converts text to values and back: one value for each byte, the longest matching token, or byte
// pair encoding as in tokenizer.json files of Hugging Face (docs/bundle.md, "Text"). A tokenizer
// never changes, so any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/json_forward.h"
#include "base/status.h"
#include "base/work_limit.h"
#include "models/text/byte_pairs.h"
#include "models/text/byte_trie.h"
#include "models/text/literal_tokens.h"
#include "models/text/marked_text.h"
#include "models/text/text_steps.h"

namespace runnel {

// The parts of a tokenizer, in the order in which text passes through them.
struct TokenizerParts {
  LiteralTokens first = LiteralTokens();  // literal tokens that are found in the unchanged text
  std::vector<PieceChange> normalizer = {};
  LiteralTokens second = LiteralTokens();  // literal tokens that are found in normalized text
  std::vector<TextStep> words = {};        // how text is split, and its words are changed
  // Words with a value of their own, which are not merged.
  std::unordered_map<std::string, int32_t> whole_words = {};
  std::variant<BytePairs, ByteTrie> model;  // a trie has every single byte
  std::vector<std::string> bytes;           // of each value
  bool drops_first_space = false;           // of decoded text
  std::vector<int32_t> begin = {}, end = {};
};

class Tokenizer {
 public:
  // A tokenizer of 256 values, one for each byte.
  static std::shared_ptr<const Tokenizer> of_bytes();
  // Reads a tokenizer.json. INVALID_ARGUMENT names `file`, the key, what was expected and what was
  // found. Something that is not supported is an error, too.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view json,
                                                            const std::string& file);
  // Reads a vocabulary of RWKV: lines of a value, a Python literal of a string or of bytes, and its
  // length in bytes. INVALID_ARGUMENT names `file`, the line, what was expected and what was found.
  static Result<std::shared_ptr<const Tokenizer>> from_rwkv(std::string_view vocabulary,
                                                            const std::string& file);

  // The same for a parsed file.
  static Result<std::shared_ptr<const Tokenizer>> from_tree(const Json& tree,
                                                            const std::string& file);
  // Reads a vocabulary of RWKV from values and their tokens. The bytes of a token are written as in
  // a literal of Python, without the quotes. Errors are those of from_rwkv(), with the value
  // instead of the line.
  static Result<std::shared_ptr<const Tokenizer>> from_rwkv_tokens(
      std::span<const std::pair<int32_t, std::string_view>> tokens, std::vector<int32_t> begin,
      const std::string& file);

  explicit Tokenizer(TokenizerParts parts);

  // The values of `text`, without begin() and end(). INVALID_ARGUMENT if the text is not UTF-8, or
  // if encoding exceeds `limit`. The message does not name the text.
  Result<std::vector<int32_t>> encode(std::string_view text, WorkLimit limit = WorkLimit()) const;
  // The same for text from several writers. It is read as a whole, but a literal token is found
  // only if all writers of its text may write it. A control token ("special" in tokenizer.json) is
  // found in the template's text, white space in all text, and other literal tokens in the
  // template's text and in answers.
  Result<std::vector<int32_t>> encode(const MarkedText& text, WorkLimit limit = WorkLimit()) const;

  // The bytes of a value, which may be part of a character. Empty if there is no such value.
  std::string_view bytes(int32_t value) const;
  // The bytes of a value that is the first of a sequence: without the space that encode() puts
  // before a text.
  std::string_view first_bytes(int32_t value) const;
  std::string_view bytes(int32_t value, bool is_first) const {
    return is_first ? first_bytes(value) : bytes(value);
  }

  // Whether the value is a literal token that a Writer::kInput may not write: <|im_end|>, <think>.
  bool is_control(int32_t value) const { return controls_.contains(value); }

  // The values that the file puts before the text of a new sequence, and after a complete text.
  // RWKV ends a text with 0.
  const std::vector<int32_t>& begin() const { return parts_.begin; }
  const std::vector<int32_t>& end() const { return parts_.end; }

  // Values are 0 to size() - 1.
  int64_t size() const { return static_cast<int64_t>(parts_.bytes.size()); }
  // The number of bytes of the longest value.
  int64_t longest() const { return longest_; }

 private:
  Result<std::vector<int32_t>> encode(std::string_view text, std::span<const TextRun> runs,
                                      WorkLimit limit) const;
  Status encode_raw(MarkedText text, bool at_start, WorkLimit& limit,
                    std::vector<int32_t>& values) const;
  Status encode_plain(std::string_view text, bool at_start, WorkLimit& limit,
                      std::vector<int32_t>& values) const;
  bool encode_word(std::string_view word, WorkLimit& limit, std::vector<int32_t>& values) const;

  const TokenizerParts parts_;
  std::unordered_set<int32_t> controls_;
  int64_t longest_ = 0;
};

}  // namespace runnel
