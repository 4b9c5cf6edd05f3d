// What is done to text before its words become values: characters change, and words are cut.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "models/text/marked_text.h"
#include "models/text/split_pattern.h"

namespace runnel {

// SentencePiece's mark for a space, U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Appends to `out` what becomes of a piece. `at_start`: the whole text begins with this piece.
using PieceChange = void (*)(std::string_view piece, bool at_start, std::string& out);

void compose(std::string_view piece, bool at_start, std::string& out);  // form C
void put_space_before(std::string_view piece, bool at_start,
                      std::string& out);                                        // unless it has one
void put_mark_before(std::string_view piece, bool at_start, std::string& out);  // always
void put_mark_before_unmarked(std::string_view piece, bool at_start, std::string& out);
void put_mark_before_start(std::string_view piece, bool at_start,
                           std::string& out);  // unless marked
void mark_spaces(std::string_view piece, bool at_start, std::string& out);
void spell_bytes(std::string_view piece, bool at_start, std::string& out);  // byte_letters.h

// What a change makes of a text, whose runs may be none: who wrote the characters that came of its
// characters. Characters that were composed of those of several writers, and what comes after them
// up to the next character of ASCII, belong to the least trusted one.
MarkedText changed(PieceChange change, const MarkedText& text, bool at_start);

// Changes every piece, or cuts it.
using TextStep = std::variant<PieceChange, SplitPattern>;

// Text as pieces that follow one another; none is empty.
class Pieces {
 public:
  // One piece: `text`, valid UTF-8 that outlives this. `at_start`: no text comes before it.
  Pieces(std::string_view text, bool at_start);
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // Takes the steps one after another. Errors as of SplitPattern::split().
  Status take(const std::vector<TextStep>& steps, TimePoint deadline);

  const std::vector<std::string_view>& all() const { return pieces_; }

 private:
  void change(PieceChange change);
  Status cut(const SplitPattern& pattern, TimePoint deadline);

  const bool at_start_;
  std::string changed_;  // what the pieces are in, once there has been a change
  std::vector<std::string_view> pieces_;
};

}  // namespace runnel
