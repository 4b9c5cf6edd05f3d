#include "models/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/check.h"

namespace runnel {
namespace {

// Every character before U+0300 is in form C by itself and begins with a byte below this one.
constexpr unsigned char kFirstOfMarks = 0xCC;
// No character decomposes into more parts (Unicode, stability policy).
constexpr int kMostParts = 4;

int order_of(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(&text[at]),
                         std::ssize(text) - static_cast<std::ptrdiff_t>(at), &character);
    check(length > 0, "text is valid UTF-8");
    at += static_cast<size_t>(length);
    std::array<utf8proc_int32_t, kMostParts> parts{};
    const auto count =
        utf8proc_decompose_char(character, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, nullptr);
    check(count > 0 && count <= kMostParts, "a character has a few parts");
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  return characters;
}

// Sorts the marks after the same character by their classes. utf8proc's own sort takes time
// quadratic in the length of a run.
void sort_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto is_mark = [](utf8proc_int32_t character) { return order_of(character) > 0; };
  for (auto from = characters.begin(); from != characters.end();) {
    const auto begin = std::find_if(from, characters.end(), is_mark);
    from = std::find_if_not(begin, characters.end(), is_mark);
    std::ranges::stable_sort(begin, from, {}, order_of);
  }
}

}  // namespace

std::string nfc(std::string_view text) {
  const bool is_composed = std::ranges::all_of(
      text, [](char byte) { return static_cast<unsigned char>(byte) < kFirstOfMarks; });
  if (is_composed) return std::string(text);
  std::vector<utf8proc_int32_t> characters = decomposed(text);
  sort_marks(characters);
  const auto count =
      utf8proc_normalize_utf32(characters.data(), std::ssize(characters),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  check(count >= 0, "characters compose");
  std::string composed;
  composed.reserve(text.size());
  for (const utf8proc_int32_t character : std::span(characters).first(static_cast<size_t>(count))) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length = utf8proc_encode_char(character, bytes.data());
    composed.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
  }
  return composed;
}

}  // namespace runnel
