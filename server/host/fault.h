// A refusal that names a field of a request, or a member within one.
#pragma once

#include <string>

#include "base/status.h"

namespace runnel {

// A refusal. OK: there is none.
struct [[nodiscard]] Fault {
  Status status;
  // The field at fault, by its name at this door, or the path of a member. Empty: no single field.
  std::string param = {};

  bool ok() const { return status.ok(); }
};

}  // namespace runnel
