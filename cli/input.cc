#include "cli/input.h"

#include <cstdio>
#include <iostream>

#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

namespace runnel {
namespace {

std::string title(const std::string& name) {
  return name == kStandardInput ? "standard input" : quote(name, 400);
}

}  // namespace

Result<std::string> read_input(const std::string& name, int64_t at_most) {
  if (name != kStandardInput) return read_file(name, at_most);
  constexpr std::streamsize kPiece = 1 << 16;
  std::string text;
  while (std::cin && static_cast<int64_t>(text.size()) <= at_most) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    std::cin.read(text.data() + before, kPiece);
    text.resize(before + static_cast<size_t>(std::cin.gcount()));
  }
  // std::cin reads through stdin, and takes an error for the end of the input.
  if (std::ferror(stdin) != 0) return invalid_argument("standard input cannot be read");
  if (static_cast<int64_t>(text.size()) <= at_most) return text;
  return invalid_argument("standard input has more than " + std::to_string(at_most) +
                          " bytes, the most that are read here");
}

Result<std::string> read_text(const std::string& name, int64_t at_most) {
  Result<std::string> text = read_input(name, at_most);
  if (!text.ok()) return text;
  if (Status status = check_utf8(*text, title(name)); !status.ok()) return status;
  return text;
}

Status check_utf8(const std::string& text, const std::string& what) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return {};
  return invalid_argument(what + " is not valid UTF-8 at byte " + std::to_string(valid) +
                          ": give UTF-8, or numbers");
}

}  // namespace runnel
