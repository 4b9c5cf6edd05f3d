// All families of models. A family is a folder of models/, an alternative of FamilySpec and a row
// of the table in families.cc. No other file lists families.
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

// The part of a Spec that only its family reads. Alternative i belongs to row i of families().
using FamilySpec = std::variant<LinearTransformerSpec, Rwkv7Spec, Mamba2Spec, GatedLinearSpec,
                                Rwkv6Spec, Mamba1Spec, HybridSpec>;

// One row of the table. Every function must be given a spec of this family.
struct Family {
  // model.family of a bundle's config.json. A file without that key belongs to the first family.
  const char* name;

  // Reads "model" of the root into spec.model, spec.positions and spec.head. Adds the first fault
  // to `faults`. The spec's vocabulary must have been read.
  void (*read_config)(const Fields& root, Faults& faults, Spec& spec);
  // The JSON that read_config() reads, without model.family.
  OrderedJson (*write_config)(const Spec& spec);

  // The values of model_type in its published files. Empty: it is not published in that form.
  std::span<const std::string_view> model_types;
  // Whether a file without model_type belongs to this family. Null: all its files have model_type.
  bool (*is_untyped)(const PublishedConfig& config);
  // The prefixes of tensor names that are not read: tensors of other inputs, and of training.
  std::span<const std::string_view> skipped;
  // Reads a published file into spec.model, spec.vocabulary and spec.head, within the bounds of
  // read_config(). Adds the first fault to the config's faults, with the keys of that file.
  void (*read_published)(const PublishedModel& model, Spec& spec);

  // The values of general.architecture in its GGUF files. Empty: there are no such files.
  std::span<const std::string_view> architectures;
  // Reads the keys of a GGUF file as read_published() does.
  void (*read_gguf)(const PublishedModel& model, Spec& spec);

  // The states of each layer, first layer first. Layers may differ. The layout of a state is built
  // from this list.
  std::vector<LayerStates> (*layers)(const Spec& spec);
  // Every tensor of the model. Loading, checking and counting use this list.
  std::vector<ExpectedTensor> (*tensors)(const Spec& spec);
  // A description of the network for people, as rows of (name, text).
  std::vector<std::pair<std::string, std::string>> (*describe)(const Spec& spec);
  // Packs weights and allocates activations. Throws std::bad_alloc if there is not enough memory.
  std::unique_ptr<Network> (*make_network)(const NetworkParts& parts);
};

std::span<const Family> families();

// The row of the spec's family.
const Family& family_of(const Spec& spec);

}  // namespace runnel
