// A refusal that names a field of a request, or a member within one.
#pragma once

#include <string>

#include "base/status.h"

namespace runnel {

// A refusal; OK where there is none.
struct [[nodiscard]] Fault {
  Status status;
  // The field at fault in the words of the door, or the path of a member; empty: none in
  // particular.
  std::string param = {};

  bool ok() const { return status.ok(); }
};

}  // namespace runnel
