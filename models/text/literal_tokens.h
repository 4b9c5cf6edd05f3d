// Pieces of text with values of their own, found in the text before anything else is done with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "models/text/byte_trie.h"
#include "models/text/marked_text.h"

namespace runnel {

struct LiteralToken {
  std::string text;
  int32_t value = 0;
  // White space before or after the text belongs to the token.
  bool takes_space_before = false;
  bool takes_space_after = false;
  // The least trusted writer whose text the token is found in.
  Writer found_in = Writer::kTemplate;
};

class LiteralTokens {
 public:
  struct Match {
    size_t begin = 0, end = 0;            // of its text; where there is no match: the text's end
    const LiteralToken* token = nullptr;  // null: no match
  };

  // The texts are not empty, and none appears twice.
  explicit LiteralTokens(std::vector<LiteralToken> tokens = {});

  // The first token in `text` that begins at `from` or later; of several that begin together, the
  // longest. `runs` are those of `text`: a token is not found where it overlaps text of a writer
  // who may not write it. Without runs every token is found. None past the deadline.
  std::optional<Match> find(std::string_view text, size_t from, TimePoint deadline,
                            std::span<const TextRun> runs = {}) const;

  bool empty() const { return tokens_.empty(); }
  const std::vector<LiteralToken>& all() const { return tokens_; }

 private:
  // The longest token at `begin` that the writers of its text may write; an empty match: none.
  Match longest(std::string_view text, size_t begin, std::span<const TextRun> runs) const;

  std::vector<LiteralToken> tokens_;
  ByteTrie trie_;  // values are indices of tokens_
};

// The bytes of white space, as Unicode has it, that `text` starts or ends with.
size_t space_at_start(std::string_view text);
size_t space_at_end(std::string_view text);

}  // namespace runnel
