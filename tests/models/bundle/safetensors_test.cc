#include "models/bundle/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "base/limits.h"
#include "models/bundle/weight_file.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr const char* kTensorFile = "some/model.safetensors";

struct Fault {
  const char* name;
  std::string header;
  int64_t data_bytes;
  std::vector<const char*> wants;  // in addition to the file
};

// A header with one tensor "w", whose entry has this text between its braces.
std::string entry(const std::string& text) { return "{\"w\":{" + text + "}}"; }

std::string two(const std::string& first, const std::string& second) {
  const std::string start = R"({"dtype":"F32","shape":[2],"data_offsets":)";
  return "{\"a\":" + start + first + "},\"b\":" + start + second + "}}";
}

std::vector<Fault> type_faults() {
  return {
      {"UnknownType",
       entry(R"("dtype":"I64","shape":[1],"data_offsets":[0,8])"),
       8,
       {"tensor 'w': dtype: expected F32, F16 or BF16, found 'I64'"}},
      {"DoubleType",
       entry(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"),
       8,
       {"tensor 'w': dtype:", "found 'F64'"}},
      {"TypeIsNumber",
       entry(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"),
       4,
       {"tensor 'w': dtype:", "found 32"}},
      {"NoType", entry(R"("shape":[1],"data_offsets":[0,4])"), 4, {"tensor 'w': dtype is missing"}},
      {"NoShape",
       entry(R"("dtype":"F32","data_offsets":[0,4])"),
       4,
       {"tensor 'w': shape is missing"}},
      {"NoOffsets",
       entry(R"("dtype":"F32","shape":[1])"),
       4,
       {"tensor 'w': data_offsets is missing"}},
      {"UnknownKey",
       entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"),
       4,
       {"tensor 'w': unknown key 'x'; expected dtype, shape and data_offsets"}},
      {"NotAnObject", R"({"w":[1]})", 4, {"tensor 'w': expected an object", "found an array of 1"}},
  };
}

std::vector<Fault> shape_faults() {
  return {
      {"ShapeIsNumber",
       entry(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"),
       4,
       {"tensor 'w': shape: expected an array of integers, found 1"}},
      {"NegativeSize",
       entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
       4,
       {"tensor 'w': shape: expected integers from 0", "found -1"}},
      {"FractionalSize",
       entry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
       4,
       {"tensor 'w': shape:", "found 1.0"}},
      {"SizeAbove63Bits",
       entry(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"),
       4,
       {"tensor 'w': shape:", "found 9223372036854775808"}},
      {"ProductOverflows",
       entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       0,
       {"tensor 'w': shape [4294967296, 4294967296] is too large"}},
      {"ProductOverflowsThenZero",
       entry(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"),
       0,
       {"tensor 'w': shape", "too large"}},
      {"BytesOverflow",
       entry(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
       0,
       {"tensor 'w': shape [4611686018427387904] is too large"}},
      {"ManyDimensions",
       entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"),
       4,
       {"tensor 'w': shape: expected at most 8 dimensions, found 9"}},
      {"BytesDoNotFit",
       entry(R"("dtype":"F32","shape":[3,2],"data_offsets":[0,20])"),
       20,
       {"tensor 'w': shape [3, 2] of F32 takes 24 bytes; data_offsets [0, 20] hold 20"}},
      {"HalfBytesDoNotFit",
       entry(R"("dtype":"F16","shape":[2],"data_offsets":[0,8])"),
       8,
       {"tensor 'w': shape [2] of F16 takes 4 bytes", "hold 8"}},
  };
}

std::vector<Fault> offset_faults() {
  return {
      {"OneOffset",
       entry(R"("dtype":"F32","shape":[1],"data_offsets":[4])"),
       4,
       {"tensor 'w': data_offsets: expected [begin, end]", "found [4]"}},
      {"ThreeOffsets",
       entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"),
       8,
       {"tensor 'w': data_offsets: expected [begin, end]", "found [0, 4, 8]"}},
      {"OffsetsBackwards",
       entry(R"("dtype":"F32","shape":[1],"data_offsets":[8,4])"),
       8,
       {"tensor 'w': data_offsets:", "found [8, 4]"}},
      {"OffsetsBeyondData",
       entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"),
       3,
       {"tensor 'w': data_offsets:", "<= 3, the bytes of data in the file, found [0, 4]"}},
      {"NegativeOffset",
       entry(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"),
       4,
       {"tensor 'w': data_offsets:", "found -4"}},
      {"EmptyName",
       R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4,
       {"tensor '': expected a name of 1 to 512 bytes, found 0"}},
      {"LongName",
       "{\"" + std::string(513, 'n') + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4,
       {"expected a name of 1 to 512 bytes, found 513"}},
  };
}

std::vector<Fault> layout_faults() {
  return {
      {"Overlap",
       two("[0,8]", "[4,12]"),
       12,
       {"tensor 'b': overlaps tensor 'a'; expected to begin at byte 8", "found 4"}},
      {"SamePlace", two("[0,8]", "[0,8]"), 8, {"tensor 'b': overlaps tensor 'a'", "found 0"}},
      {"Hole",
       two("[0,8]", "[12,20]"),
       20,
       {"tensor 'b': leaves a hole after tensor 'a'; expected to begin at byte 8", "found 12"}},
      {"HoleAtStart",
       two("[4,12]", "[12,20]"),
       20,
       {"tensor 'a': leaves a hole after the header", "found 4"}},
      {"DataLeft",
       two("[0,8]", "[8,16]"),
       17,
       {"17 bytes of data follow the header; expected 16, where tensor 'b' ends"}},
      {"DataWithoutTensors",
       "{}",
       4,
       {"4 bytes of data follow the header; expected 0, where the header ends"}},
      {"NameTwice",
       R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{}})",
       4,
       {"key 'a' appears twice"}},
      {"MetadataIsText",
       R"({"__metadata__":"pt"})",
       0,
       {"__metadata__: expected an object of strings, found 'pt'"}},
      {"MetadataOfNumbers",
       R"({"__metadata__":{"steps":3}})",
       0,
       {"__metadata__: expected an object of strings, found 3 under 'steps'"}},
      {"NotJson", "{\"a\":", 0, {"not valid JSON"}},
      {"NotUtf8", "{\"\xc0\xaf\":{}}", 0, {"not valid JSON", "UTF-8"}},
      {"Array", "[]", 0, {"the header starts with '['; expected '{'"}},
      {"SpaceFirst", " {}", 0, {"the header starts with ' '; expected '{'"}},
      {"Empty", "", 0, {"the header starts with ''; expected '{'"}},
      {"Deep", R"({"a":{"shape":[[1]]}})", 0, {"nested deeper than 3 levels"}},
      {"TrailingText", "{}{}", 0, {"not valid JSON", "end of input"}},
      {"TrailingZeros", std::string("{}\0\0", 4), 0, {"zero byte at offset 2"}},
  };
}

void expect_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    const auto tensors = parse_safetensors_header(fault.header, fault.data_bytes, kTensorFile);
    ASSERT_FALSE(tensors.ok());
    EXPECT_EQ(tensors.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(tensors.status().message(), testing::StartsWith("some/model.safetensors: "));
    for (const char* want : fault.wants) EXPECT_THAT(tensors.status().message(), HasSubstr(want));
  }
}

TEST(SafetensorsHeader, NamesTheFaultOfAnEntry) {
  expect_faults(type_faults());
  expect_faults(shape_faults());
  expect_faults(offset_faults());
}

TEST(SafetensorsHeader, NamesTheFaultOfTheLayout) { expect_faults(layout_faults()); }

TEST(SafetensorsHeader, BoundsTheNumberOfValues) {
  std::string header = "{\"a\":{\"shape\":[0";
  for (int i = 0; i < (1 << 20); ++i) header += ",0";
  const auto tensors = parse_safetensors_header(header + "]}}", 0, kTensorFile);
  ASSERT_FALSE(tensors.ok());
  EXPECT_THAT(tensors.status().message(), HasSubstr("more than 1048576 JSON values"));
}

TEST(SafetensorsHeader, ReadsWellFormedHeaders) {
  const char* const header =
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"none":{"dtype":"F32","shape":[0,7],)"
      R"("data_offsets":[4,4]},"__metadata__":{"format":"pt"},"a\u00e9":{"shape":[],"data_offsets":[0,4],)"
      R"("dtype":"F32"},"last":{"dtype":"F16","shape":[0],"data_offsets":[16,16]}}   )";
  const auto tensors = parse_safetensors_header(header, 16, kTensorFile);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 4U);
  const StoredTensor& matrix = tensors->at("b");
  EXPECT_EQ(matrix.type, StoredType::kBF16);
  EXPECT_EQ(matrix.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(matrix.begin, 4);
  EXPECT_EQ(matrix.end, 16);
  EXPECT_EQ(matrix.elements(), 6);
  EXPECT_EQ(tensors->at("aé").elements(), 1);
  EXPECT_EQ(tensors->at("none").elements(), 0);
  EXPECT_EQ(tensors->at("last").type, StoredType::kF16);
}

class SafetensorsFileTest : public testing::Test {
 protected:
  // Opens a file that has these bytes.
  Result<WeightFile> open(std::string_view bytes) {
    write_file(path(), bytes);
    return WeightFile::open(path());
  }
  std::string path() const { return directory_.path() + "/model.safetensors"; }

  TempDir directory_;
};

std::vector<float> random_values(size_t count, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(static_cast<int64_t>(bits()) >> 20),
                       -44 - static_cast<int>(bits() % 20));
  }
  return values;
}

TEST_F(SafetensorsFileTest, WidensEveryTypeAtAnyAddress) {
  const std::vector<float> values = random_values(105, 1);
  const std::map<std::string, RawTensor> raw = {
      {"bf16", {"BF16", {3, 5, 7}, raw_values(values, StoredType::kBF16)}},
      {"f16", {"F16", {105}, raw_values(values, StoredType::kF16)}},
      {"f32", {"F32", {15, 7}, raw_values(values, StoredType::kF32)}},
      {"zero", {"F32", {0, 3}, ""}},
  };
  const std::string whole = safetensors_file(raw);
  const size_t header_bytes = whole.find("}}") + 2 - 8;
  for (size_t padding = 0; padding < 5; ++padding) {  // the data may begin at any byte
    const std::string header = whole.substr(8, header_bytes) + std::string(padding, ' ');
    const Result<WeightFile> file =
        open(safetensors_file(header, std::string_view(whole).substr(8 + header_bytes)));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->path(), path());
    EXPECT_EQ(file->tensors().size(), 4U);
    const auto f32 = file->find("f32", std::array<int64_t, 2>{15, 7});
    const auto f16 = file->find("f16", std::array<int64_t, 1>{105});
    const auto bf16 = file->find("bf16", std::array<int64_t, 3>{3, 5, 7});
    const auto zero = file->find("zero", std::array<int64_t, 2>{0, 3});
    ASSERT_TRUE(f32.ok() && f16.ok() && bf16.ok() && zero.ok());
    EXPECT_EQ(widened(*f32), values);
    EXPECT_EQ(zero->elements(), 0);
    const std::vector<float> of_f16 = widened(*f16);
    const std::vector<float> of_bf16 = widened(*bf16);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(of_f16[i], stored(values[i], StoredType::kF16));
      EXPECT_EQ(of_bf16[i], stored(values[i], StoredType::kBF16));
      EXPECT_NEAR(of_f16[i], values[i], std::abs(values[i]) * 0x1p-11F + 0x1p-25F);
      EXPECT_NEAR(of_bf16[i], values[i], std::abs(values[i]) * 0x1p-8F);
    }
  }
}

// The value of a finite fp16, as IEEE 754 defines it.
double f16_value(int half) {
  const int exponent = half >> 10 & 31;
  const double fraction = (half & 1023) / 1024.0;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return half < 0x8000 ? size : -size;
}

TEST_F(SafetensorsFileTest, WidensEveryFiniteF16Exactly) {
  std::string data;
  std::vector<double> expected;
  for (int half = 0; half < 65536; ++half) {
    if ((half >> 10 & 31) == 31) continue;
    data += {static_cast<char>(half & 255), static_cast<char>(half >> 8)};
    expected.push_back(f16_value(half));
  }
  const int64_t count = std::ssize(expected);
  const Result<WeightFile> file = open(safetensors_file({{"w", {"F16", {count}, data}}}));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto read = file->find("w", std::array<int64_t, 1>{count});
  ASSERT_TRUE(read.ok()) << read.status().message();
  const std::vector<float> values = widened(*read);
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(double{values[i]}, expected[i]) << i;
    ASSERT_EQ(std::signbit(values[i]), std::signbit(expected[i])) << i;
  }
}

// The error of check_finite() for the tensor "w".
std::string finite_fault(const WeightFile& file) {
  const Result<Tensor> tensor = file.find("w", file.tensors().at("w").shape);
  return check_finite(*tensor, "w", file.path()).message();
}

TEST_F(SafetensorsFileTest, NamesTheFirstElementThatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const StoredType type : {StoredType::kF32, StoredType::kF16, StoredType::kBF16}) {
    const char* const name = std::array{"F32", "F16", "BF16"}[static_cast<size_t>(type)];
    std::vector<float> values(12000, 1.0F);
    values[7000] = -infinity;
    values[7001] = infinity;
    const Result<WeightFile> file =
        open(safetensors_file({{"w", {name, {3, 4000}, raw_values(values, type)}}}));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(finite_fault(*file),
              path() + ": tensor 'w': element [1, 3000] is -infinity; expected a finite number");
  }
  const Result<WeightFile> file =
      open(safetensors_file({{"w", {"F32", {1}, raw_values({nan}, StoredType::kF32)}}}));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(finite_fault(*file),
              HasSubstr("tensor 'w': element [0] is NaN; expected a finite number"));
}

TEST_F(SafetensorsFileTest, FindNamesShapesExpectedAndFound) {
  const Result<WeightFile> file =
      open(safetensors_file({{"w", {"F32", {2, 1}, std::string(8, '\0')}}}));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->find("w", std::array<int64_t, 2>{1, 2}).status().message(),
            path() + ": tensor 'w': expected shape [1, 2], found [2, 1]");
  EXPECT_EQ(file->find("w", std::array<int64_t, 1>{2}).status().message(),
            path() + ": tensor 'w': expected shape [2], found [2, 1]");
  EXPECT_EQ(file->find("v", std::array<int64_t, 1>{2}).status().message(),
            path() + ": tensor 'v': expected shape [2], found no such tensor");
}

TEST_F(SafetensorsFileTest, RefusesOtherFiles) {
  struct Case {
    std::string bytes;
    const char* wants;
  };
  const std::string eight(8, '\xff');
  const std::vector<Case> cases = {
      {"", "0 bytes; expected at least 8"},
      {"1234567", "7 bytes; expected at least 8"},
      {std::string(8, '\0'), "the header starts with ''"},
      {eight, "the header's length is 18446744073709551615 bytes; expected at most 0"},
      {std::string("\x03\0\0\0\0\0\0\0{}", 10),
       "the header's length is 3 bytes; expected at most 2"},
      {std::string("PK\3\4\0\0\0\0\0\0zip", 13), "is it a safetensors file, and complete?"},
      {safetensors_file("{}", "x"), "1 bytes of data follow the header; expected 0"},
  };
  for (const Case& bad : cases) {
    const Result<WeightFile> file = open(bad.bytes);
    ASSERT_FALSE(file.ok()) << bad.wants;
    EXPECT_EQ(file.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(file.status().message(), testing::StartsWith(path() + ": "));
    EXPECT_THAT(file.status().message(), HasSubstr(bad.wants));
  }
}

TEST_F(SafetensorsFileTest, RefusesAHeaderAboveTheLimit) {
  const uint64_t length = kMaxSafetensorsHeaderBytes + 1;
  write_file(path(), std::string_view(reinterpret_cast<const char*>(&length), 8));
  std::filesystem::resize_file(path(), length + 100);  // sparse
  const Result<WeightFile> file = WeightFile::open(path());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(),
              HasSubstr("the header's length is 104857601 bytes; expected at most 104857600"));
}

TEST_F(SafetensorsFileTest, EveryCutOfAFileIsRefused) {
  const std::string whole = safetensors_file(
      {{"a", {"F32", {3}, std::string(12, '\0')}}, {"b", {"F16", {2}, std::string(4, '\0')}}});
  ASSERT_TRUE(open(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(open(whole.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(open(whole + "x").ok());
}

TEST_F(SafetensorsFileTest, RefusesAnythingButARegularFile) {
  EXPECT_EQ(WeightFile::open(path()).status().code(), Code::kNotFound);
  EXPECT_THAT(WeightFile::open(path()).status().message(),
              HasSubstr("model.safetensors: cannot be opened: No such file"));
  const Status directory = WeightFile::open(directory_.path()).status();
  EXPECT_EQ(directory.code(), Code::kInvalidArgument);
  EXPECT_THAT(directory.message(), HasSubstr("expected a file, found a directory"));
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);  // opening must not wait for a writer
  EXPECT_THAT(WeightFile::open(path()).status().message(),
              HasSubstr("expected a file, found a pipe"));
}

TEST_F(SafetensorsFileTest, MovesKeepTheMapping) {
  Result<WeightFile> first =
      open(safetensors_file({{"w", {"F32", {1}, raw_values({2.5F}, StoredType::kF32)}}}));
  ASSERT_TRUE(first.ok());
  WeightFile moved = std::move(*first);
  std::filesystem::remove(path());  // so the next file is a new one, not the same one rewritten
  Result<WeightFile> second = open(safetensors_file("{}", ""));
  ASSERT_TRUE(second.ok());
  *second = std::move(moved);
  const auto values = second->find("w", std::array<int64_t, 1>{1});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(widened(*values), std::vector<float>{2.5F});
}

}  // namespace
}  // namespace runnel
