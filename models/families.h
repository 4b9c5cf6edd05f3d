// The families of models that there are. A family is a folder of models/, an alternative of
// FamilySpec and a row of the table in families.cc; no other file lists families.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_forward.h"
#include "models/expected_tensor.h"
#include "models/gated_linear/spec.h"
#include "models/hybrid/spec.h"
#include "models/linear_transformer/spec.h"
#include "models/mamba1/spec.h"
#include "models/mamba2/spec.h"
#include "models/rwkv6/spec.h"
#include "models/rwkv7/spec.h"
#include "models/state/layout.h"

namespace runnel {

class Faults;
class Fields;
class Network;
class PublishedConfig;
struct NetworkParts;
struct PublishedModel;
struct Spec;

// The part of a Spec that only its family reads. Alternative i is of row i of families().
using FamilySpec = std::variant<LinearTransformerSpec, Rwkv7Spec, Mamba2Spec, GatedLinearSpec,
                                Rwkv6Spec, Mamba1Spec, HybridSpec>;

// One row of the table. Every function is given a spec of this family.
struct Family {
  // model.family of a bundle's config.json. A file without that key is of the first family.
  const char* name;

  // Reads "model" of the root into spec.model, spec.positions and spec.head; the first fault goes
  // to `faults`. The spec's vocabulary has been read.
  void (*read_config)(const Fields& root, Faults& faults, Spec& spec);
  // What read_config() reads, without model.family.
  OrderedJson (*write_config)(const Spec& spec);

  // model_type of the files as which it is published; none: it is not.
  std::span<const std::string_view> model_types;
  // Whether a file without model_type is of this family; null: all its files have model_type.
  bool (*is_untyped)(const PublishedConfig& config);
  // How names begin of tensors in its files that are not read: of other inputs, and of training.
  std::span<const std::string_view> skipped;
  // Reads such a file into spec.model, spec.vocabulary and spec.head, within the bounds of
  // read_config(); the first fault goes to the config's faults, by the keys of that file.
  void (*read_published)(const PublishedModel& model, Spec& spec);

  // general.architecture of its GGUF files; none: there are no such files.
  std::span<const std::string_view> architectures;
  // Reads the keys of such a file as read_published() does.
  void (*read_gguf)(const PublishedModel& model, Spec& spec);

  // What each layer keeps of the past, first layer first; layers may differ. It is what a state's
  // layout is built from.
  std::vector<LayerStates> (*layers)(const Spec& spec);
  // Every tensor of the model: the one list that loading, checking and counting go by.
  std::vector<ExpectedTensor> (*tensors)(const Spec& spec);
  // The network's shape in words, as rows of (what, text).
  std::vector<std::pair<std::string, std::string>> (*describe)(const Spec& spec);
  // Packs weights and allocates activations. Throws std::bad_alloc when the memory is not there.
  std::unique_ptr<Network> (*make_network)(const NetworkParts& parts);
};

std::span<const Family> families();

// The row of the spec's family.
const Family& family_of(const Spec& spec);

}  // namespace runnel
