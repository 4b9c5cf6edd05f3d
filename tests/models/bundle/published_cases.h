// Golden models in the formats of their libraries, and cases in which one key of such a model has
// another value.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "base/json.h"
#include "models/bundle/published.h"
#include "models/bundle/safetensors.h"
#include "models/bundle/weight_file.h"
#include "models/spec.h"

namespace runnel {

struct KeyCase {
  const char* model;    // the name of the golden model
  const char* key;      // the key that gets another value
  const char* value;    // the value, as JSON
  const char* message;  // a part of the error
};

// The config and the tensors of a folder in tests/golden.
struct PublishedFiles {
  Json config;
  StoredTensors tensors;

  Result<Spec> spec() const {
    return published_spec(config, tensors, "model.safetensors", "config.json");
  }
  // The error of spec(), or "".
  std::string fault() const {
    const Result<Spec> found = spec();
    return found.ok() ? "" : found.status().message();
  }
};

inline PublishedFiles read_published(const std::string& folder) {
  const std::string path = "tests/golden/" + folder;
  std::ifstream file(path + "/config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto weights = WeightFile::open(path + "/model.safetensors");
  EXPECT_TRUE(weights.ok()) << folder;
  return {*parse_published(text, path), weights->tensors()};
}

// Expects that fault() is "" with the original `keys`, and that it has the case's message once
// `key` has the case's value.
template <typename FaultOf>
void expect_refused_by_key(const KeyCase& one, Json& keys, const std::string& key,
                           const FaultOf& fault) {
  EXPECT_EQ(fault(), "");
  keys[key] = Json::parse(one.value);
  EXPECT_THAT(fault(), testing::HasSubstr(one.message));
}

// Expects that each model is accepted unchanged, and refused by its key with the changed value.
inline void expect_refused(std::span<const KeyCase> cases) {
  for (const KeyCase& one : cases) {
    SCOPED_TRACE(std::string(one.model) + " " + one.key);
    PublishedFiles published = read_published(one.model);
    expect_refused_by_key(one, published.config, one.key, [&] { return published.fault(); });
    EXPECT_THAT(published.fault(), testing::HasSubstr("config.json: "));
  }
}

}  // namespace runnel
