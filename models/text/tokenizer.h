// Text to values and back: one value per byte, or byte-level byte pair encoding as tokenizer.json
// files of Hugging Face have it (docs/bundle.md, "Text"). Never changes once made: any thread may
// use it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "models/text/byte_pairs.h"
#include "models/text/split_pattern.h"

namespace runnel {

// Pieces of text with values of their own, wherever they stand. Where several begin, the longest
// counts.
class LiteralTokens {
 public:
  struct Match {
    size_t begin = 0, end = 0;
    int32_t value = 0;
  };

  // `text` is not empty.
  void add(std::string_view text, int32_t value);
  // The first one in `text` that begins at or after `from`; none: both ends are text.size().
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::map<char, int32_t> next;  // indices of nodes_
    int32_t value = -1;            // of the text that ends here; -1: none does
  };

  std::vector<Node> nodes_{1};  // a trie; the first is its root
};

// What a tokenizer consists of, in the order in which text goes through it.
struct TokenizerParts {
  LiteralTokens first;      // literal tokens, and
  LiteralTokens second;     // those looked for in what the first ones leave
  bool add_prefix = false;  // a space before every piece that has none
  std::vector<SplitPattern> patterns;
  std::unordered_map<std::string, int32_t> words;  // that are values as a whole, before any merge
  BytePairs pairs;
  std::vector<std::string> bytes;  // of each value
};

class Tokenizer {
 public:
  // 256 values, each its byte.
  static std::shared_ptr<const Tokenizer> of_bytes();
  // Reads a tokenizer.json. INVALID_ARGUMENT names `file`, the key, what was expected and what was
  // found: also where the file asks for something that is not done here.
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json,
                                                        const std::string& file);

  explicit Tokenizer(TokenizerParts parts);

  // The values of `text`. INVALID_ARGUMENT, which does not name the text, when it is not UTF-8 or
  // takes too long.
  Result<std::vector<int32_t>> encode(std::string_view text) const;

  // What a value stands for, not always whole characters; empty for one that there is not.
  std::string_view bytes(int32_t value) const;

  // Values are 0 to size() - 1.
  int64_t size() const { return static_cast<int64_t>(parts_.bytes.size()); }
  // Bytes of the longest value.
  int64_t longest() const { return longest_; }

 private:
  Status encode_plain(std::string_view text, TimePoint deadline,
                      std::vector<int32_t>& values) const;
  void encode_word(std::string_view word, std::vector<int32_t>& values) const;

  const TokenizerParts parts_;
  int64_t longest_ = 0;
};

}  // namespace runnel
