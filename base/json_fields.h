// Reads the members of JSON objects from outside, and keeps the first fault as one line that names
// the file, the key, what was expected and what was found.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace runnel {

// A word that a file may contain, and its meaning.
template <typename T>
struct Choice {
  const char* name;
  T value;
};

template <typename T, size_t N>
const char* name_of(const std::array<Choice<T>, N>& choices, T value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "";
}

// Keeps the first fault of a file. Reading continues with harmless values, so callers need no
// checks in between.
class Faults {
 public:
  // `file` must outlive the object.
  explicit Faults(const std::string& file) : file_(file) {}
  explicit Faults(std::string&&) = delete;

  void add(const std::string& key, const std::string& what);
  void add(const std::string& key, const std::string& expected, const std::string& found) {
    add(key, "expected " + expected + ", found " + found);
  }
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const std::string& file_;
  Status status_;
};

// The members of one object of the file. The constructor gets all keys that it may contain.
class Fields {
 public:
  // `node` is null if there is no such object; its fault must have been added already.
  Fields(Faults& faults, const Json* node, std::string path, std::span<const char* const> keys);
  Fields(Faults& faults, const Json* node, std::string path,
         std::initializer_list<const char*> keys)
      : Fields(faults, node, std::move(path), std::span(keys.begin(), keys.size())) {}

  std::string path(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  // Null if the key is absent.
  const Json* find(const char* key) const;
  // Null if the key is absent, which is a fault.
  const Json* require(const char* key, const std::string& expected) const;

  // Required members. If a member is absent or has another type, the least value is returned.
  Fields object(const char* key, std::span<const char* const> keys) const;
  Fields object(const char* key, std::initializer_list<const char*> keys) const {
    return object(key, std::span(keys.begin(), keys.size()));
  }
  int64_t integer(const char* key, int64_t min, int64_t max) const;
  int small(const char* key, int64_t min, int64_t max) const {
    return static_cast<int>(integer(key, min, max));
  }
  template <typename T, size_t N>
  T choice(const char* key, const std::array<Choice<T>, N>& choices) const {
    std::string expected;
    for (const Choice<T>& choice : choices) {
      expected += (expected.empty() ? "'" : " or '") + std::string(choice.name) + "'";
    }
    const Json* member = require(key, expected);
    if (member == nullptr) return choices[0].value;
    for (const Choice<T>& choice : choices) {
      if (member->is_string() && member->get_ref<const std::string&>() == choice.name) {
        return choice.value;
      }
    }
    faults_.add(path(key), expected, describe(*member));
    return choices[0].value;
  }

  // Optional members. If a member is absent, `fallback` is returned.
  float number(const char* key, float fallback, float max) const;  // above 0
  float eps(const char* key, float fallback) const { return number(key, fallback, 1.0F); }
  bool boolean(const char* key, bool fallback) const;

 private:
  Faults& faults_;
  const Json* node_ = nullptr;  // null: absent, or not an object
  std::string path_;
};

// The double whose decimal form is the shortest one that reads back as this float.
double shortest(float value);

}  // namespace runnel
