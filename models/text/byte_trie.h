// Finds the longest of many byte strings that is a prefix of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace runnel {

class ByteTrie {
 public:
  struct Match {
    size_t length = 0;  // bytes; 0: no string is a prefix
    int32_t value = -1;
  };

  // Strings with their values, which are at least 0. No string is empty and none appears twice.
  // Takes 12 bytes of memory for each distinct prefix.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> strings = {});

  // The longest string that `text` starts with. O(length of the longest string).
  Match longest(std::string_view text) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  // The children of a node are adjacent, in the order of their bytes.
  struct Node {
    uint32_t children = 0;  // index of the first
    int32_t value = -1;     // of the string that ends here; -1: no string ends here
    uint16_t count = 0;     // of children
    unsigned char byte = 0;
  };

  const Node* child(const Node& node, unsigned char byte) const;

  std::vector<Node> nodes_;  // breadth first; the first is the root
};

}  // namespace runnel
