#include "models/spec.h"

namespace runnel {

int64_t Spec::state_bytes() const {
  return state_bytes_of(family_of(*this).layers(*this), positions);
}

int64_t Spec::position_bytes() const { return position_bytes_of(family_of(*this).layers(*this)); }

int64_t Spec::parameters() const {
  int64_t count = 0;
  for (const ExpectedTensor& tensor : expected_tensors(*this)) {
    if (tensor.trained && tensor.read) count += tensor.elements();
  }
  return count;
}

int64_t Spec::active_parameters() const {
  int64_t count = 0;
  for (const ExpectedTensor& tensor : expected_tensors(*this)) {
    if (tensor.trained && tensor.read) count += tensor.active();
  }
  return count;
}

Status set_context(int64_t context, Spec& spec) {
  if (context == 0 || spec.most_positions == 0) return {};
  if (context > spec.most_positions) {
    return invalid_argument("context is " + std::to_string(context) + ", and model '" + spec.name +
                            "' has at most " + std::to_string(spec.most_positions) +
                            " positions: lower --context");
  }
  spec.positions = context;
  return {};
}

std::vector<ExpectedTensor> expected_tensors(const Spec& spec) {
  return family_of(spec).tensors(spec);
}

std::vector<std::pair<std::string, std::string>> description_of(const Spec& spec) {
  return family_of(spec).describe(spec);
}

}  // namespace runnel
