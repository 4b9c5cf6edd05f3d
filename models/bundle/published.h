// A model as its makers publish it: a config.json of Hugging Face's libraries, of
// flash-linear-attention or of state-spaces, and weights with the makers' names of tensors. Keys
// about training or for other programs are ignored. A key that asks for something that is not
// supported is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "models/bundle/safetensors.h"
#include "models/spec.h"

namespace runnel {

// Parses such a config.json. It is JSON, and may also have the numbers Infinity, -Infinity and NaN,
// which Python writes; they become strings of these words. INVALID_ARGUMENT names `file`.
Result<Json> parse_published(std::string_view text, const std::string& file);

// An object of such a config.json. A key with the value null counts as absent. After a fault, which
// is added to `faults`, a harmless value is returned.
class PublishedConfig {
 public:
  // `node` null: an object without keys. All arguments must outlive the object.
  PublishedConfig(Faults& faults, const Json* node, std::string path = "");

  std::string path(const char* key) const { return path_.empty() ? key : path_ + "." + key; }
  Faults& faults() const { return faults_; }

  // Null if the key is absent.
  const Json* find(const char* key) const;

  // An object. If the key is absent, an object without keys.
  PublishedConfig object(const char* key) const;
  // A required integer of [min, max].
  int integer(const char* key, int64_t min, int64_t max) const;
  // An optional value; `fallback` if the key is absent.
  int integer_or(const char* key, int fallback, int64_t min, int64_t max) const;
  double number_or(const char* key, double fallback, double min, double max) const;
  // Above 0 and at most `max`.
  float eps_or(const char* key, float fallback, float max = 1.0F) const;
  bool boolean_or(const char* key, bool fallback) const;
  std::string text_or(const char* key, const std::string& fallback) const;

  // Adds a fault if the file asks for something that is not supported: a boolean other than `only`,
  // a text that is not among `only`, or a key whose value is not an empty list or object. An absent
  // key is accepted.
  void allow(const char* key, bool only) const;
  void allow(const char* key, std::initializer_list<const char*> only) const;
  void allow_nothing(const char* key, const char* what) const;
  // Adds a fault if a hybrid has layers with attention. The value is a list of their numbers, or an
  // object that has the list as "layers". The message has the numbers.
  void refuse_attention(const char* key) const;

 private:
  // Whether the key is there and its value is not an empty list or object.
  bool asks_for(const char* key) const;

  Faults& faults_;
  const Json* node_ = nullptr;
  std::string path_;
};

// The data that a family's reader needs: the config, and from the weights the names of tensors and
// the sizes that no key gives.
struct PublishedModel {
  PublishedConfig config;
  const StoredTensors& tensors;
  const std::string& weights;  // the name of the weights' file

  bool has(std::string_view tensor) const { return tensors.contains(tensor); }
  // A dimension of a tensor's shape, within [1, max]. If there is none, adds a fault and returns 1.
  int size(const std::string& tensor, size_t dimension, int64_t max) const;
  // Reads the number of rows of the embedding, of which the first `vocabulary` are values. Sets
  // both in the spec, and returns the rows.
  int read_vocabulary(const std::string& embedding, std::optional<int> vocabulary,
                      Spec& spec) const;
};

// Describes, for a fault, a model_type or an architecture that no family reads, with the reason if
// it is known. "no such key" if `type` is empty.
std::string describe_unread(const std::string& type);

// Whether `config` is from a published model. If not, it may be a bundle's own.
bool is_published(const Json& config);

// INVALID_ARGUMENT if no family reads this model. The message names `file` and the families.
Status check_family(const Json& config, const std::string& file);

// The spec of a published model, without its name, its kind of text and its eos. It is read by the
// family of its model_type. Without a model_type, it is read by the family that recognizes it
// (Family::is_untyped). INVALID_ARGUMENT names `file`.
Result<Spec> published_spec(const Json& config, const StoredTensors& tensors,
                            const std::string& weights, const std::string& file);

// The values of eos_token_id, which is a number or a list of numbers. Any integer is accepted here.
// Models with images may have the key in text_config. Empty if the key is absent.
Result<std::vector<int64_t>> published_eos(const Json& config, const std::string& file);

}  // namespace runnel
