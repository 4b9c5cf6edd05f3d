// The steps that process text before its words become values: they change characters, and split
// text into words.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/work_limit.h"
#include "models/text/marked_text.h"
#include "models/text/split_pattern.h"

namespace runnel {

// SentencePiece's mark for a space, U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Appends the changed piece to `out`. `at_start`: the whole text begins with this piece.
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

// Applies a change to a text, which may have no runs. A changed character has the writer of the
// characters that it was made from. If these have several writers, the changed character, and the
// characters after it up to the next ASCII character, belong to the least trusted one.
MarkedText changed(PieceChange change, const MarkedText& text, bool at_start);

// A step: changes every piece, or splits it.
using TextStep = std::variant<PieceChange, SplitPattern>;

// A text as adjacent pieces; none is empty.
class Pieces {
 public:
  // Begins with one piece: `text`, which must be valid UTF-8 and must outlive the object.
  // `at_start`: no text comes before it.
  Pieces(std::string_view text, bool at_start);
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // Applies the steps in order. Errors are those of SplitPattern::split().
  Status take(const std::vector<TextStep>& steps, WorkLimit& limit);

  const std::vector<std::string_view>& all() const { return pieces_; }

 private:
  void change(PieceChange change);
  Status cut(const SplitPattern& pattern, WorkLimit& limit);

  const bool at_start_;
  std::string changed_;  // the memory of the pieces, after a change
  std::vector<std::string_view> pieces_;
};

}  // namespace runnel
