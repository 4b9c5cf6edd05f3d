#include "models/text/text_steps.h"

#include <utility>

#include "models/text/byte_letters.h"
#include "models/text/nfc.h"

namespace runnel {

void compose(std::string_view piece, bool /*at_start*/, std::string& out) { out += nfc(piece); }

void put_space_before(std::string_view piece, bool /*at_start*/, std::string& out) {
  if (!piece.starts_with(' ')) out += ' ';
  out += piece;
}

void put_mark_before(std::string_view piece, bool /*at_start*/, std::string& out) {
  out += kSpaceMark;
  out += piece;
}

void put_mark_before_unmarked(std::string_view piece, bool /*at_start*/, std::string& out) {
  if (!piece.starts_with(kSpaceMark)) out += kSpaceMark;
  out += piece;
}

void put_mark_before_start(std::string_view piece, bool at_start, std::string& out) {
  if (at_start && !piece.starts_with(kSpaceMark)) out += kSpaceMark;
  out += piece;
}

void mark_spaces(std::string_view piece, bool /*at_start*/, std::string& out) {
  for (const char c : piece) c == ' ' ? out += kSpaceMark : out += c;
}

void spell_bytes(std::string_view piece, bool /*at_start*/, std::string& out) {
  for (const char c : piece) out += letter_of(static_cast<unsigned char>(c));
}

namespace {

// Whether the change puts text before a piece.
bool puts_before(PieceChange change) {
  return change == put_space_before || change == put_mark_before ||
         change == put_mark_before_unmarked || change == put_mark_before_start;
}

bool is_ascii(char byte) { return (byte & 0x80) == 0; }

}  // namespace

MarkedText changed(PieceChange change, const MarkedText& text, bool at_start) {
  MarkedText out;
  if (text.runs.empty() || puts_before(change)) {
    change(text.bytes, at_start, out.bytes);
    const size_t more = out.bytes.size() - text.bytes.size();
    for (const TextRun& run : text.runs) out.runs.push_back({run.end + more, run.writer});
    return out;
  }
  // No change crosses the start of an ASCII character.
  size_t begin = 0;
  for (const TextRun& run : text.runs) {
    if (run.end <= begin) continue;
    size_t end = run.end;
    while (end < text.bytes.size() && !is_ascii(text.bytes[end])) ++end;
    std::string part;
    change(std::string_view(text.bytes).substr(begin, end - begin), at_start && begin == 0, part);
    out.append(part, least_trusted(text.runs, begin, end));
    begin = end;
  }
  return out;
}

Pieces::Pieces(std::string_view text, bool at_start) : at_start_(at_start) {
  if (!text.empty()) pieces_.push_back(text);
}

Status Pieces::take(const std::vector<TextStep>& steps, WorkLimit& limit) {
  for (const TextStep& step : steps) {
    if (const auto* const one = std::get_if<PieceChange>(&step)) {
      change(*one);
    } else if (Status s = cut(std::get<SplitPattern>(step), limit); !s.ok()) {
      return s;
    }
  }
  return {};
}

void Pieces::change(PieceChange change) {
  std::string changed;
  std::vector<size_t> ends;
  for (const std::string_view piece : pieces_) {
    change(piece, at_start_ && ends.empty(), changed);
    ends.push_back(changed.size());
  }
  changed_ = std::move(changed);
  for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
    pieces_[i] = std::string_view(changed_).substr(begin, ends[i] - begin);
  }
}

Status Pieces::cut(const SplitPattern& pattern, WorkLimit& limit) {
  std::vector<std::string_view> smaller;
  for (const std::string_view piece : pieces_) {
    if (Status s = pattern.split(piece, limit, smaller); !s.ok()) return s;
  }
  pieces_ = std::move(smaller);
  return {};
}

}  // namespace runnel
