#include "models/text/byte_pairs.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace runnel {
namespace {

constexpr int32_t kNone = -1;
// The number of merges between two checks of the clock.
constexpr int64_t kMergesAtOnce = 4096;

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// The number of bytes of the character that begins with `first`.
size_t length_of(unsigned char first) {
  if (first < 0xC0) return 1;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// A number that has the bytes of a character.
uint32_t key_of(std::string_view character) {
  uint32_t key = 0;
  for (const char byte : character) key = key << 8 | static_cast<unsigned char>(byte);
  return key;
}

// A merge that was possible when it was queued. The smallest is next: ordered by rank, then from
// left to right.
struct Waiting {
  int32_t rank = 0;
  int32_t at = 0;  // the place of its left part
  int32_t merged = 0;
  friend auto operator<=>(const Waiting&, const Waiting&) = default;
};

}  // namespace

// A word in progress: parts in a doubly linked list, each of which may merge into its left
// neighbour.
class BytePairs::Word {
 public:
  // `values` are the initial parts.
  Word(const BytePairs& pairs, const std::vector<int32_t>& values) : pairs_(pairs) {
    const auto count = static_cast<int32_t>(values.size());
    parts_.reserve(values.size());
    for (int32_t at = 0; at < count; ++at) {
      parts_.push_back({values[static_cast<size_t>(at)], at - 1, at + 1 < count ? at + 1 : kNone});
    }
    std::vector<Waiting> first;
    for (int32_t at = 0; at < count; ++at) look(at, first);
    waiting_ = Queue(std::greater<>(), std::move(first));
  }

  // Returns false if the limit is exceeded.
  bool merge(WorkLimit& limit) {
    std::vector<Waiting> found;
    for (int64_t merges = 1; !waiting_.empty(); ++merges) {
      const bool looks = merges % kMergesAtOnce == 0;
      if (looks && limit.is_over()) return false;
      const Waiting next = waiting_.top();
      waiting_.pop();
      if (!is_current(next)) continue;
      Part& left = parts_[static_cast<size_t>(next.at)];
      Part& right = parts_[static_cast<size_t>(left.next)];
      left.value = next.merged;
      left.next = right.next;
      right.value = kNone;  // merged into the left part
      if (left.next != kNone) parts_[static_cast<size_t>(left.next)].previous = next.at;
      found.clear();
      if (left.previous != kNone) look(left.previous, found);
      look(next.at, found);
      for (const Waiting& one : found) waiting_.push(one);
    }
    return true;
  }

  void append_to(std::vector<int32_t>& values) const {
    for (const Part& part : parts_) {
      if (part.value != kNone) values.push_back(part.value);
    }
  }

 private:
  struct Part {
    int32_t value, previous, next;
  };
  using Queue = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;

  // The merge of the part at `at` with its right neighbour; null if they do not merge.
  const Merge* merge_at(int32_t at) const {
    const Part& left = parts_[static_cast<size_t>(at)];
    if (left.value == kNone || left.next == kNone) return nullptr;
    return pairs_.find(left.value, parts_[static_cast<size_t>(left.next)].value);
  }

  void look(int32_t at, std::vector<Waiting>& found) const {
    const Merge* const merge = merge_at(at);
    if (merge != nullptr) found.push_back({merge->rank, at, merge->merged});
  }

  bool is_current(const Waiting& waiting) const {
    const Merge* const merge = merge_at(waiting.at);
    return merge != nullptr && merge->rank == waiting.rank;
  }

  const BytePairs& pairs_;
  std::vector<Part> parts_;  // by the index of their first value
  Queue waiting_;
};

void BytePairs::add_character(std::string_view character, int32_t value) {
  characters_[key_of(character)] = value;
}

void BytePairs::add_merge(int32_t left, int32_t right, int32_t merged) {
  merges_[pair_of(left, right)] = {ranks_++, merged};
}

const BytePairs::Merge* BytePairs::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

bool BytePairs::encode(std::string_view word, WorkLimit& limit,
                       std::vector<int32_t>& values) const {
  const size_t before = values.size();
  begin(word, values);
  if (values.size() - before < 2 || merges_.empty()) return true;
  Word parts(*this, {values.begin() + static_cast<std::ptrdiff_t>(before), values.end()});
  values.resize(before);
  if (!parts.merge(limit)) return false;
  parts.append_to(values);
  return true;
}

void BytePairs::begin(std::string_view word, std::vector<int32_t>& values) const {
  while (!word.empty()) {
    const std::string_view character =
        word.substr(0, length_of(static_cast<unsigned char>(word.front())));
    const auto known = characters_.find(key_of(character));
    if (known != characters_.end()) {
      values.push_back(known->second);
    } else {
      for (const char byte : character) {
        values.push_back(byte_values_[static_cast<unsigned char>(byte)]);
      }
    }
    word.remove_prefix(character.size());
  }
}

}  // namespace runnel
