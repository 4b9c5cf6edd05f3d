// Golden files: the outputs of a model's own classes for a sequence, and runnel's outputs.
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

// One sequence and its outputs.
struct Golden {
  std::vector<int32_t> values;
  std::vector<float> head;      // [steps][width], the first steps
  std::vector<float> log_prob;  // of every value but the first
};

// Read a file of tensors, and one of its tensors. A missing file or tensor fails the test.
WeightFile open(const std::string& path);
std::vector<float> read(const WeightFile& file, const std::string& name);

// The sequences of tests/golden/FOLDER/golden.bin, which has `count` sequences.
std::vector<Golden> load_golden(const std::string& folder, size_t count);

Bundle load(const std::string& directory);

// The outputs of the bundle's model for the values, on this backend or on one thread of a CPU.
Golden run_model(const Bundle& bundle, Backend& backend, const std::vector<int32_t>& values);
Golden run_model(const Bundle& bundle, Isa isa, const std::vector<int32_t>& values);

// The largest error of a row: the norm of found - expected over the norm of expected.
double worst_row_error(const std::vector<float>& found, const std::vector<float>& expected,
                       int width);

// The largest |found - expected|, relative to the larger of 1 and |expected|.
double worst_error(const std::vector<float>& found, const std::vector<float>& expected);

}  // namespace runnel
