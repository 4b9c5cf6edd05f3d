// Names for tests that run over a list of cases: the name identifies the case.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace runnel {

// "3_n_65": the index of the case, and the letters and digits of a text that describes it.
inline std::string case_name(size_t index, std::string_view what) {
  constexpr size_t kMost = 40;
  std::string name = std::to_string(index);
  bool gap = true;
  for (const char c : what.substr(0, kMost)) {
    const bool is_kept = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_kept && gap) name += '_';
    if (is_kept) name += c;
    gap = !is_kept;
  }
  return name;
}

}  // namespace runnel
