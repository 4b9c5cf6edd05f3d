#include "models/spec.h"

namespace runnel {

int64_t Spec::state_bytes() const {
  return std::visit([](const auto& family) { return state_bytes_of(family); }, model);
}

int64_t Spec::parameters() const {
  int64_t count = 0;
  for (const ExpectedTensor& tensor : expected_tensors(*this)) {
    if (tensor.trained && tensor.read) count += tensor.elements();
  }
  return count;
}

std::vector<ExpectedTensor> expected_tensors(const Spec& spec) {
  return std::visit([&](const auto& family) { return tensors_of(family, spec); }, spec.model);
}

std::vector<std::pair<std::string, std::string>> description_of(const Spec& spec) {
  return std::visit([&](const auto& family) { return description_of(family, spec); }, spec.model);
}

}  // namespace runnel
