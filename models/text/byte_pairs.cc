#include "models/text/byte_pairs.h"

#include <functional>
#include <queue>
#include <utility>

namespace runnel {
namespace {

constexpr int32_t kNone = -1;

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A merge that was possible when it was queued. The smallest is the next: by rank, then from the
// left.
struct Waiting {
  int32_t rank = 0;
  int32_t at = 0;  // of its left part
  int32_t merged = 0;
  friend auto operator<=>(const Waiting&, const Waiting&) = default;
};

}  // namespace

// A word at work: parts in a doubly linked list, each merged into its left neighbour.
class BytePairs::Word {
 public:
  Word(const BytePairs& pairs, std::string_view text) : pairs_(pairs) {
    const auto count = static_cast<int32_t>(text.size());
    parts_.reserve(text.size());
    for (int32_t at = 0; at < count; ++at) {
      const auto byte = static_cast<unsigned char>(text[static_cast<size_t>(at)]);
      parts_.push_back({pairs.byte_values_[byte], at - 1, at + 1 < count ? at + 1 : kNone});
    }
    std::vector<Waiting> first;
    for (int32_t at = 0; at < count; ++at) look(at, first);
    waiting_ = Queue(std::greater<>(), std::move(first));
  }

  void merge() {
    std::vector<Waiting> found;
    while (!waiting_.empty()) {
      const Waiting next = waiting_.top();
      waiting_.pop();
      if (!is_current(next)) continue;
      Part& left = parts_[static_cast<size_t>(next.at)];
      Part& right = parts_[static_cast<size_t>(left.next)];
      left.value = next.merged;
      left.next = right.next;
      right.value = kNone;  // gone
      if (left.next != kNone) parts_[static_cast<size_t>(left.next)].previous = next.at;
      found.clear();
      if (left.previous != kNone) look(left.previous, found);
      look(next.at, found);
      for (const Waiting& one : found) waiting_.push(one);
    }
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

  // The merge of the part at `at` with its right neighbour; null: there is none.
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
  std::vector<Part> parts_;  // by the place of their first byte
  Queue waiting_;
};

void BytePairs::add_merge(int32_t left, int32_t right, int32_t merged) {
  merges_[pair_of(left, right)] = {ranks_++, merged};
}

const BytePairs::Merge* BytePairs::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::encode(std::string_view word, std::vector<int32_t>& values) const {
  if (word.size() == 1 || merges_.empty()) {
    for (const char byte : word) values.push_back(byte_values_[static_cast<unsigned char>(byte)]);
    return;
  }
  Word parts(*this, word);
  parts.merge();
  parts.append_to(values);
}

}  // namespace runnel
