#include "models/text/byte_trie.h"

#include <algorithm>
#include <queue>

namespace runnel {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> strings) : nodes_(1) {
  struct Range {
    size_t begin, end;  // the strings that pass through a node
    size_t depth;       // the bytes that they have in common
  };
  std::ranges::sort(strings);
  std::queue<Range> ranges({{0, strings.size(), 0}});  // of the nodes from `node` on
  for (size_t node = 0; !ranges.empty(); ++node, ranges.pop()) {
    auto [begin, end, depth] = ranges.front();
    if (begin < end && strings[begin].first.size() == depth) {
      nodes_[node].value = strings[begin++].second;
    }
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = strings[begin].first[depth];
      const size_t first = begin;
      while (begin < end && strings[begin].first[depth] == byte) ++begin;
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ranges.push({first, begin, depth + 1});
    }
    nodes_[node].count = static_cast<uint16_t>(nodes_.size() - nodes_[node].children);
  }
}

ByteTrie::Match ByteTrie::longest(std::string_view text) const {
  Match match;
  const Node* node = nodes_.data();
  for (size_t at = 0; at < text.size(); ++at) {
    node = child(*node, static_cast<unsigned char>(text[at]));
    if (node == nullptr) break;
    if (node->value >= 0) match = {at + 1, node->value};
  }
  return match;
}

const ByteTrie::Node* ByteTrie::child(const Node& node, unsigned char byte) const {
  const Node* const first = nodes_.data() + node.children;
  const Node* const end = first + node.count;
  if (node.count == 256) return first + byte;
  const Node* const found = std::lower_bound(
      first, end, byte, [](const Node& one, unsigned char other) { return one.byte < other; });
  return found != end && found->byte == byte ? found : nullptr;
}

}  // namespace runnel
