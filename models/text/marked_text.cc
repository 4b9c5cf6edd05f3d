#include "models/text/marked_text.h"

#include <algorithm>

namespace runnel {

const char* writer_name(Writer writer) {
  switch (writer) {
    case Writer::kTemplate:
      return "template";
    case Writer::kInput:
      return "input";
    case Writer::kAnswer:
      return "answer";
  }
  return "";
}

void MarkedText::append(std::string_view text, Writer writer) {
  if (text.empty()) return;
  bytes += text;
  if (!runs.empty() && runs.back().writer == writer) {
    runs.back().end = bytes.size();
  } else {
    runs.push_back({bytes.size(), writer});
  }
}

void MarkedText::append(const MarkedText& text, size_t from, size_t to) {
  auto run = std::ranges::upper_bound(text.runs, from, {}, &TextRun::end);
  const std::string_view all = text.bytes;
  while (from < to) {
    const size_t end = std::min(to, run->end);
    append(all.substr(from, end - from), run->writer);
    from = end;
    ++run;
  }
}

Writer MarkedText::writer_at(size_t offset) const {
  return std::ranges::upper_bound(runs, offset, {}, &TextRun::end)->writer;
}

MarkedText part_of(std::string_view text, std::span<const TextRun> runs, size_t from, size_t to) {
  MarkedText part{std::string(text.substr(from, to - from)), {}};
  auto run = std::ranges::upper_bound(runs, from, {}, &TextRun::end);
  for (bool more = run != runs.end(); more; ++run) {
    more = run->end < to;
    part.runs.push_back({std::min(run->end, to) - from, run->writer});
  }
  return part;
}

Writer least_trusted(std::span<const TextRun> runs, size_t from, size_t to) {
  Writer least = Writer::kTemplate;
  auto run = std::ranges::upper_bound(runs, from, {}, &TextRun::end);
  for (bool more = from < to; more && run != runs.end(); ++run) {
    least = std::max(least, run->writer);
    more = run->end < to;
  }
  return least;
}

}  // namespace runnel
