#include "base/list_text.h"

#include <algorithm>

namespace runnel {

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t begin = part.find_first_not_of(' ');
    if (begin == std::string_view::npos) continue;
    parts.emplace_back(part.substr(begin, part.find_last_not_of(' ') + 1 - begin));
  }
  return parts;
}

}  // namespace runnel
