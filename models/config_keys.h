// The keys of a family's part of config.json. A family lists them once, in a function that takes
// the sizes and a visitor, and calls the visitor with each key in the order of the file. The
// visitors here list the keys, read them and write them. Internal to models/.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/limits.h"
#include "models/spec.h"

namespace runnel {

class KeyNames {
 public:
  explicit KeyNames(std::vector<const char*> first = {}) : names_(std::move(first)) {}

  std::span<const char* const> all() const { return names_; }

  void choice(const char* key, const auto&, const auto&) { names_.push_back(key); }
  void size(const char* key, const auto&...) { names_.push_back(key); }
  void rows(const char* key, int) { names_.push_back(key); }
  void on(const char* key, const auto&...) { names_.push_back(key); }
  void number(const char* key, const auto&...) { names_.push_back(key); }
  void eps(const char* key, const auto&...) { names_.push_back(key); }
  void object(const char* key, const auto&) { names_.push_back(key); }

 private:
  std::vector<const char*> names_;
};

class KeyReader {
 public:
  KeyReader(Fields fields, int vocabulary) : fields_(std::move(fields)), vocabulary_(vocabulary) {}

  template <typename T, size_t N>
  void choice(const char* key, T& to, const std::array<Choice<T>, N>& choices) const {
    to = fields_.choice(key, choices);
  }
  // These keys are required.
  void size(const char* key, int& to, int64_t least = 1, int64_t most = kMaxWidth) const {
    to = fields_.small(key, least, most);
  }
  void rows(const char* key, int& to) const { size(key, to, vocabulary_, kMaxVocabulary); }
  // These keys are optional. `written`: whether KeyWriter writes the key.
  void on(const char* key, bool& to, bool /*written*/ = true) const {
    to = fields_.boolean(key, to);
  }
  void number(const char* key, float& to, float most, bool /*written*/ = true) const {
    to = fields_.number(key, to, most);
  }
  void eps(const char* key, float& to, bool /*written*/ = true) const { number(key, to, 1.0F); }
  // An object, whose keys `visit` visits.
  void object(const char* key, const auto& visit) const {
    KeyNames names;
    visit(names);
    KeyReader inner(fields_.object(key, names.all()), vocabulary_);
    visit(inner);
  }

 private:
  const Fields fields_;
  const int vocabulary_;
};

class KeyWriter {
 public:
  explicit KeyWriter(OrderedJson& to) : to_(to) {}

  template <typename T, size_t N>
  void choice(const char* key, T value, const std::array<Choice<T>, N>& choices) {
    to_[key] = name_of(choices, value);
  }
  void size(const char* key, int value, int64_t /*least*/ = 0, int64_t /*most*/ = 0) {
    to_[key] = value;
  }
  void rows(const char* key, int value) { to_[key] = value; }
  void on(const char* key, bool value, bool written = true) {
    if (written) to_[key] = value;
  }
  void number(const char* key, float value, float /*most*/, bool written = true) {
    if (written) to_[key] = shortest(value);
  }
  void eps(const char* key, float value, bool written = true) { number(key, value, 1.0F, written); }
  void object(const char* key, const auto& visit) {
    KeyWriter inner(to_[key]);
    visit(inner);
  }

 private:
  OrderedJson& to_;
};

// Reads "model" of the root into spec.model and spec.head. The spec's vocabulary must have been
// read.
template <typename Sizes>
Sizes& read_keys(const auto& visit, const Fields& root, Spec& spec) {
  auto& sizes = spec.model.emplace<Sizes>();
  KeyNames names({"family"});
  visit(sizes, names);
  KeyReader reader(root.object("model", names.all()), spec.vocabulary);
  visit(sizes, reader);
  spec.head.values = spec.vocabulary;
  return sizes;
}

template <typename Sizes>
OrderedJson write_keys(const auto& visit, const Sizes& sizes) {
  OrderedJson model;
  KeyWriter writer(model);
  visit(sizes, writer);
  return model;
}

}  // namespace runnel
