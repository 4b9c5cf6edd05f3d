// Which slots are free. Its size is the server's capacity, exactly: nothing is evicted to make
// room.
#pragma once

#include <optional>
#include <vector>

#include "models/model.h"

namespace runnel {

class StatePool {
 public:
  explicit StatePool(int slots);

  int size() const { return static_cast<int>(leased_.size()); }
  int free() const { return static_cast<int>(free_.size()); }

  // A slot for its caller alone, or none. Its content is whatever was there: zero it with
  // Model::set().
  std::optional<SlotId> lease();

  // Gives a slot back. Releasing one that is not leased stops the process.
  void release(SlotId slot);

 private:
  std::vector<SlotId> free_;  // a stack: the slot released last is warm in the cache
  std::vector<bool> leased_;
};

}  // namespace runnel
