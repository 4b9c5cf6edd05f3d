// Text to values and back: one value per byte, the longest token that fits, or byte pair encoding
// as tokenizer.json files of Hugging Face have it (docs/bundle.md, "Text"). Never changes once
// made: any thread may use it.
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
#include "models/text/byte_pairs.h"
#include "models/text/byte_trie.h"
#include "models/text/literal_tokens.h"
#include "models/text/marked_text.h"
#include "models/text/text_steps.h"

namespace runnel {

// What a tokenizer consists of, in the order in which text goes through it.
struct TokenizerParts {
  LiteralTokens first = LiteralTokens();  // literal tokens, found in the text as it is
  std::vector<PieceChange> normalizer = {};
  LiteralTokens second = LiteralTokens();  // those found in normalized text
  std::vector<TextStep> words = {};        // how text is cut, and its words changed
  std::unordered_map<std::string, int32_t> whole_words = {};  // values as they are, never merged
  std::variant<BytePairs, ByteTrie> model;                    // a trie has every single byte
  std::vector<std::string> bytes;                             // of each value
  bool drops_first_space = false;                             // when values become text
  std::vector<int32_t> begin = {}, end = {};
};

class Tokenizer {
 public:
  // 256 values, each its byte.
  static std::shared_ptr<const Tokenizer> of_bytes();
  // Reads a tokenizer.json. INVALID_ARGUMENT names `file`, the key, what was expected and what was
  // found: also where the file asks for something that is not done here.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view json,
                                                            const std::string& file);
  // Reads a vocabulary of RWKV: lines of a value, a Python literal of a string or of bytes, and its
  // length in bytes. INVALID_ARGUMENT names `file`, the line, what was expected and what was found.
  static Result<std::shared_ptr<const Tokenizer>> from_rwkv(std::string_view vocabulary,
                                                            const std::string& file);

  // The same of a file that has been parsed.
  static Result<std::shared_ptr<const Tokenizer>> from_tree(const Json& tree,
                                                            const std::string& file);
  // A vocabulary of RWKV as values with tokens, whose bytes are written as in a literal of Python
  // without its quotes. Errors are those of from_rwkv(), with the value for the line.
  static Result<std::shared_ptr<const Tokenizer>> from_rwkv_tokens(
      std::span<const std::pair<int32_t, std::string_view>> tokens, std::vector<int32_t> begin,
      const std::string& file);

  explicit Tokenizer(TokenizerParts parts);

  // The values of `text`, without begin() and end(). INVALID_ARGUMENT, which does not name the
  // text, when it is not UTF-8, or takes too long: 2 s, or beyond `until`.
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      TimePoint until = TimePoint::max()) const;
  // The same of text that several writers wrote. It is read as a whole, but a literal token is
  // found only where all writers of its text may write it: a control token ("special" in
  // tokenizer.json) in the template's text, white space in all text, other literal tokens in the
  // template's and in answers.
  Result<std::vector<int32_t>> encode(const MarkedText& text,
                                      TimePoint until = TimePoint::max()) const;

  // What a value stands for, not always whole characters; empty for one that there is not.
  std::string_view bytes(int32_t value) const;
  // The same of the first value of a sequence: without the space that encode() puts before a text.
  std::string_view first_bytes(int32_t value) const;

  // Whether the value is a literal token that the input may not write: <|im_end|>, <think>.
  bool is_control(int32_t value) const { return controls_.contains(value); }

  // Values that the file puts before the text of a fresh sequence, and after a text that is
  // complete. RWKV's end a text with 0.
  const std::vector<int32_t>& begin() const { return parts_.begin; }
  const std::vector<int32_t>& end() const { return parts_.end; }

  // Values are 0 to size() - 1.
  int64_t size() const { return static_cast<int64_t>(parts_.bytes.size()); }
  // Bytes of the longest value.
  int64_t longest() const { return longest_; }

 private:
  Result<std::vector<int32_t>> encode(std::string_view text, std::span<const TextRun> runs,
                                      TimePoint until) const;
  Status encode_raw(MarkedText text, bool at_start, TimePoint deadline,
                    std::vector<int32_t>& values) const;
  Status encode_plain(std::string_view text, bool at_start, TimePoint deadline,
                      std::vector<int32_t>& values) const;
  bool encode_word(std::string_view word, TimePoint deadline, std::vector<int32_t>& values) const;

  const TokenizerParts parts_;
  std::unordered_set<int32_t> controls_;
  int64_t longest_ = 0;
};

}  // namespace runnel
