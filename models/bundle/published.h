// A model as its makers publish it: config.json of Hugging Face's libraries, of
// flash-linear-attention or of state-spaces, beside weights under the names that they have there.
// What such a file says of training and of other programs is passed over; what it asks for and is
// not done here is refused by name.
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

// Parses such a file: JSON, and the numbers Infinity, -Infinity and NaN that Python writes and JSON
// does not have. They become strings of these words. INVALID_ARGUMENT names `file`.
Result<Json> parse_published(std::string_view text, const std::string& file);

// An object of such a file. A key that holds null counts as absent. What is wrong goes to `faults`,
// and a harmless value is given.
class PublishedConfig {
 public:
  // `node` null: an object without keys. All outlive this one.
  PublishedConfig(Faults& faults, const Json* node, std::string path = "");

  std::string path(const char* key) const { return path_.empty() ? key : path_ + "." + key; }
  Faults& faults() const { return faults_; }

  // Null when the key is absent.
  const Json* find(const char* key) const;

  // An object; where it is absent one without keys.
  PublishedConfig object(const char* key) const;
  // An integer of [min, max] that must be there.
  int integer(const char* key, int64_t min, int64_t max) const;
  // Where absent: the fallback.
  int integer_or(const char* key, int fallback, int64_t min, int64_t max) const;
  double number_or(const char* key, double fallback, double min, double max) const;
  // Above 0 and at most `max`.
  float eps_or(const char* key, float fallback, float max = 1.0F) const;
  bool boolean_or(const char* key, bool fallback) const;
  std::string text_or(const char* key, const std::string& fallback) const;

  // Faults where the file asks for what is not done here: a switch that is not `only`, a text that
  // is none of `only`, or a key that is there and is not an empty list or object. Absent is fine.
  void allow(const char* key, bool only) const;
  void allow(const char* key, std::initializer_list<const char*> only) const;
  void allow_nothing(const char* key, const char* what) const;
  // The same for the layers of a hybrid that have attention: a list of their numbers, or an object
  // that has the list as "layers". The fault names them.
  void refuse_attention(const char* key) const;

 private:
  // Whether the key is there and is not an empty list or object.
  bool asks_for(const char* key) const;

  Faults& faults_;
  const Json* node_ = nullptr;
  std::string path_;
};

// What a family's reader goes by. It finds the names in the weights and sizes that no key gives.
struct PublishedModel {
  PublishedConfig config;
  const StoredTensors& tensors;
  const std::string& weights;  // their file

  bool has(std::string_view tensor) const { return tensors.contains(tensor); }
  // A size of a tensor's shape, within [1, max]; a fault and 1 where there is none.
  int size(const std::string& tensor, size_t dimension, int64_t max) const;
  // Rows of the embedding, of which the first `vocabulary` are values. Sets both in the spec.
  int read_vocabulary(const std::string& embedding, std::optional<int> vocabulary,
                      Spec& spec) const;
};

// A model_type or an architecture that no family reads, for a fault: with the reason where that is
// known, "no such key" where it is empty.
std::string describe_unread(const std::string& type);

// Whether it is of a published model; else it may be a bundle's own.
bool is_published(const Json& config);

// INVALID_ARGUMENT naming `file` and the families that there are, where the model is of another
// one.
Status check_family(const Json& config, const std::string& file);

// The spec of a published model, without its name, its text and the values that end it. The family
// of its model_type reads it, or the one that knows it without (Family::is_untyped).
// INVALID_ARGUMENT names `file`.
Result<Spec> published_spec(const Json& config, const StoredTensors& tensors,
                            const std::string& weights, const std::string& file);

// The values of eos_token_id, a number or a list of them, in which any integer may be; empty where
// the key is absent.
Result<std::vector<int64_t>> published_eos(const Json& config, const std::string& file);

}  // namespace runnel
