#include "config/edit_distance.h"

#include <algorithm>
#include <vector>

namespace runnel {

int edit_distance(std::string_view from, std::string_view to) {
  const size_t columns = to.size() + 1;
  std::vector<int> before(columns);  // the row before the previous one
  std::vector<int> last(columns);
  std::vector<int> row(columns);
  for (size_t j = 0; j < columns; ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= from.size(); ++i) {
    before = last;
    last = row;
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int changed = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, std::span<const std::string> known) {
  // A hostile word may be long. A mistyped word is not.
  if (word.size() > 64) return "";
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : known) {
    const int distance = edit_distance(word, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace runnel
