// Golden files: what a model's own classes made of a sequence, and what runnel makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "models/bundle/bundle.h"
#include "models/bundle/safetensors.h"
#include "models/bundle/weight_file.h"

namespace runnel {

constexpr const char* kGoldenFolder = "tests/golden/";

// One sequence and what the real classes made of it.
struct Golden {
  std::vector<int32_t> values;
  std::vector<float> head;      // [steps][width], the first steps
  std::vector<float> log_prob;  // of every value but the first
};

// A file of tensors, and one of them. These and load() fail the test where there is none.
WeightFile open(const std::string& path);
std::vector<float> read(const WeightFile& file, const std::string& name);

// The sequences of tests/golden/FOLDER/golden.bin, which has `count` of them.
std::vector<Golden> load_golden(const std::string& folder, size_t count);

Bundle load(const std::string& directory);

// What a model of the bundle makes of the values on this backend, or on one thread of a CPU.
Golden run_model(const Bundle& bundle, Backend& backend, const std::vector<int32_t>& values);
Golden run_model(const Bundle& bundle, Isa isa, const std::vector<int32_t>& values);

// The largest |found - expected| over what each position's outputs are worth: the norm of its row.
double worst_row_error(const std::vector<float>& found, const std::vector<float>& expected,
                       int width);

// The largest |found - expected| over the larger of 1 and |expected|.
double worst_error(const std::vector<float>& found, const std::vector<float>& expected);

}  // namespace runnel
