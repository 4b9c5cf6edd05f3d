#include "base/system_file.h"

#include <fstream>

namespace runnel {

std::optional<int64_t> number_in(const std::string& path) {
  int64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

std::optional<int64_t> number_after(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string found; file >> found;) {
    int64_t number = 0;
    if (found == word && file >> number) return number;
  }
  return std::nullopt;
}

}  // namespace runnel
