// Literal tokens: pieces of text with their own values. They are found before the text is processed
// in any other way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_limit.h"
#include "models/text/byte_trie.h"
#include "models/text/marked_text.h"

namespace runnel {

struct LiteralToken {
  std::string text;
  int32_t value = 0;
  // White space before or after the text belongs to the token.
  bool takes_space_before = false;
  bool takes_space_after = false;
  // The least trusted writer in whose text the token is recognized.
  Writer found_in = Writer::kTemplate;
};

class LiteralTokens {
 public:
  struct Match {
    size_t begin = 0, end = 0;            // of the token; without a match: the end of the text
    const LiteralToken* token = nullptr;  // null: no match
  };

  // The texts are not empty, and none appears twice.
  explicit LiteralTokens(std::vector<LiteralToken> tokens = {});

  // The first token in `text` that begins at `from` or later. Of several that begin at the same
  // place, the longest. `runs` are the runs of `text`: a token is not found if a part of it is from
  // a writer who may not write it. Without runs every token is found. None if the limit is
  // passed.
  std::optional<Match> find(std::string_view text, size_t from, WorkLimit& limit,
                            std::span<const TextRun> runs = {}) const;

  bool empty() const { return tokens_.empty(); }
  const std::vector<LiteralToken>& all() const { return tokens_; }

 private:
  // The longest token at `begin` that the writers of its text may write. An empty match if there is
  // none.
  Match longest(std::string_view text, size_t begin, std::span<const TextRun> runs) const;

  std::vector<LiteralToken> tokens_;
  ByteTrie trie_;  // values are indices of tokens_
};

// The number of bytes of white space, as Unicode defines it, at the start or the end of `text`.
size_t space_at_start(std::string_view text);
size_t space_at_end(std::string_view text);

}  // namespace runnel
