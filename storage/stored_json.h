// Reads a JSON object that a store has kept. Its faults are DATA_LOSS.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_fields.h"

namespace runnel {

inline Status damaged(const std::string& what) { return {Code::kDataLoss, what}; }

class StoredJson {
 public:
  // `source` names the object in errors. `keys` are all keys that it may have.
  StoredJson(std::string_view text, std::string source, const JsonLimits& limits,
             std::initializer_list<const char*> keys)
      : source_(std::move(source)),
        json_(parse_json(text, source_, limits)),
        faults_(source_),
        fields_(faults_, json_.ok() ? &*json_ : nullptr, "", keys) {}
  StoredJson(const StoredJson&) = delete;
  StoredJson& operator=(const StoredJson&) = delete;

  // The members. If `text` is not JSON, there are none.
  const Fields& fields() const { return fields_; }
  Faults& faults() { return faults_; }
  // The first fault, as DATA_LOSS.
  Status status() const {
    if (!json_.ok()) return damaged(json_.status().message());
    return faults_.ok() ? Status() : damaged(faults_.status().message());
  }

 private:
  const std::string source_;
  const Result<Json> json_;
  Faults faults_;
  const Fields fields_;
};

}  // namespace runnel
