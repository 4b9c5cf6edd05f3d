// Text with the writer of each byte: the template, or somebody whose words must not become control
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Who wrote a byte of a rendering, the most trusted first.
enum class Writer : uint8_t {
  kTemplate,
  kAnswer,  // of an assistant's message, which a model wrote, or a client says it did
  kInput,   // of another message, a tool's schema or a variable
};

// "template", "input" or "answer".
const char* writer_name(Writer writer);

// The bytes from the end of the run before up to `end`.
struct TextRun {
  size_t end;
  Writer writer;
  friend bool operator==(const TextRun&, const TextRun&) = default;
};

// UTF-8 text. The runs cover it. No run is empty, and adjacent runs have different writers.
struct MarkedText {
  std::string bytes;
  std::vector<TextRun> runs;

  // Appends text that one writer wrote.
  void append(std::string_view text, Writer writer);
  // Appends bytes `from` to `to` of `text`.
  void append(const MarkedText& text, size_t from, size_t to);
  void append(const MarkedText& text) { append(text, 0, text.bytes.size()); }
  // The writer of the byte at `offset`, which must exist.
  Writer writer_at(size_t offset) const;
};

// The least trusted writer of bytes `from` to `to`. Without runs, the template wrote all bytes.
Writer least_trusted(std::span<const TextRun> runs, size_t from, size_t to);

// Bytes `from` to `to` of a text with its runs. There may be no runs.
MarkedText part_of(std::string_view text, std::span<const TextRun> runs, size_t from, size_t to);

// The bytes of memory that a text takes.
inline size_t memory_of(const MarkedText& text) {
  return text.bytes.size() + text.runs.size() * sizeof(TextRun);
}

}  // namespace runnel
