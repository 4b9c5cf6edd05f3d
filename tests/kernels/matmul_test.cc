#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

// A layer and its inputs, both random.
struct Problem {
  int rows, in, out;
  Precision precision = Precision::kFp32;
  bool in_bf16 = false;  // the weight is given in bf16, so its numbers are bf16 numbers
  std::vector<float> weight, bias, x;

  Problem(int rows, int in, int out, uint32_t seed, bool with_bias = true)
      : rows(rows),
        in(in),
        out(out),
        weight(random_floats(int64_t{in} * out, seed)),
        bias(with_bias ? random_floats(out, seed + 1) : std::vector<float>()),
        x(random_floats(int64_t{rows} * in, seed + 2)) {}

  Weight pack(Backend& backend) const {
    const HostTensor biases = {bias.empty() ? nullptr : bias.data(), 1, out};
    if (!in_bf16) return backend.pack({weight.data(), out, in}, biases, precision);
    const std::vector<uint16_t> halves = bf16_of(weight);
    return backend.pack({halves.data(), out, in, DType::kBF16}, biases, precision);
  }
  std::vector<float> x_row(int row) const {
    return {x.begin() + int64_t{row} * in, x.begin() + int64_t{row + 1} * in};
  }
};

std::vector<float> run(Backend& backend, const Problem& problem, Activation activation,
                       const std::vector<int>& rows, int extra_stride = 0) {
  const int count = static_cast<int>(rows.size());
  Guarded x(count, problem.in, extra_stride);
  Guarded y(count, problem.out, extra_stride);
  for (int i = 0; i < count; ++i) {
    const std::vector<float> from = problem.x_row(rows[i]);
    std::copy(from.begin(), from.end(), x.row(i));
  }
  const Weight weight = problem.pack(backend);
  backend.matmul(x.view(), weight, activation, y.view());
  y.expect_guards("matmul");
  return y.values();
}

std::vector<int> all_rows(const Problem& problem) {
  std::vector<int> rows(problem.rows);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// The same problem in bf16. `exact` has its numbers rounded to bf16, to compare with.
struct Rounded {
  Problem given, exact;
  explicit Rounded(Problem problem) : given(std::move(problem)), exact(given) {
    given.precision = Precision::kBf16;
    for (float& w : exact.weight) w = rounded_to_bf16(w);
    for (float& x : exact.x) x = rounded_to_bf16(x);
  }
};

template <typename T>
std::vector<T> absolute(std::vector<T> numbers) {
  for (T& number : numbers) number = std::abs(number);
  return numbers;
}

// A bound for any order of sums: (terms + 1) roundings relative to the sum of magnitudes.
void expect_close(const Problem& problem, Activation activation, const std::vector<float>& found) {
  const std::vector<float> weight = absolute(problem.weight), bias = absolute(problem.bias);
  for (int row = 0; row < problem.rows; ++row) {
    const std::vector<float> from = problem.x_row(row);
    const reference::Vector x(from.begin(), from.end());
    const reference::Vector y = reference::linear(x, problem.weight, problem.bias);
    const reference::Vector sizes = reference::linear(absolute(x), weight, bias);
    for (int col = 0; col < problem.out; ++col) {
      const double expected = reference::activate(activation, y[col]);
      const double bound =
          6e-8 * (problem.in + 2) * sizes[col] + 3e-7 * std::max(1.0, std::abs(y[col]));
      const float at = found[static_cast<size_t>(row) * problem.out + col];
      if (std::abs(at - expected) <= bound) continue;
      FAIL() << problem.rows << " x " << problem.in << " x " << problem.out << " at " << row << ", "
             << col << ": " << at << " for " << expected;
    }
  }
}

class Matmul : public KernelTest {};

TEST_P(Matmul, MatchesReferenceOnEveryNumberOfRows) {
  for (int rows = 1; rows <= 40; ++rows) {
    const Problem problem(rows, 33, 67, static_cast<uint32_t>(rows));
    expect_close(problem, Activation::kNone,
                 run(backend(), problem, Activation::kNone, all_rows(problem), rows % 3));
  }
}

TEST_P(Matmul, MatchesReferenceOnShapesThatBreak) {
  for (const int in : {1, 3, 17, 30, 32, 100}) {
    for (const int out : {1, 3, 17, 30, 31, 32, 33, 100, 130, 257}) {
      for (const int rows : {1, 2, 5, 9}) {
        const Problem problem(rows, in, out, static_cast<uint32_t>(in * out + rows), out % 2 == 0);
        expect_close(problem, Activation::kNone,
                     run(backend(), problem, Activation::kNone, all_rows(problem), 5));
      }
    }
  }
}

TEST_P(Matmul, RoundsWeightsAndInputsToBf16AndNothingElse) {
  for (const int in : {1, 2, 3, 17, 64, 257}) {
    for (const int out : {1, 31, 33, 130}) {
      for (const int rows : {1, 8, 39}) {
        const Rounded problem(Problem(rows, in, out, static_cast<uint32_t>(in * out + rows)));
        expect_close(problem.exact, Activation::kGelu,
                     run(backend(), problem.given, Activation::kGelu, all_rows(problem.given), 3));
      }
    }
  }
}

// A weight of bf16 numbers gives the same bits in either type.
TEST_P(Matmul, TheTypeThatAWeightIsGivenInDoesNotChangeBits) {
  for (const int in : {1, 2, 3, 17, 32, 33, 100, 257}) {
    for (const int out : {1, 3, 17, 31, 32, 33, 100, 130, 257}) {
      for (const int rows : {1, 2, 5, 9, 40}) {
        Problem widened(rows, in, out, static_cast<uint32_t>(in * out + rows), out % 2 == 0);
        for (float& w : widened.weight) w = rounded_to_bf16(w);
        for (const Precision precision : precisions_of(backend())) {
          widened.precision = precision;
          Problem halves = widened;
          halves.in_bf16 = true;
          const std::vector<int> chosen = all_rows(widened);
          ASSERT_TRUE(same_bits(run(backend(), widened, Activation::kGelu, chosen, 3),
                                run(backend(), halves, Activation::kGelu, chosen, 3)))
              << rows << " x " << in << " x " << out;
        }
      }
    }
  }
}

TEST_P(Matmul, AppliesEveryActivation) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    for (const int out : {1, 17, 33, 96}) {
      const Problem problem(7, 19, out, static_cast<uint32_t>(out));
      expect_close(problem, activation, run(backend(), problem, activation, all_rows(problem), 1));
    }
  }
}

TEST_P(Matmul, NoRowsIsNothing) {
  const Problem problem(1, 8, 8, 3);
  EXPECT_TRUE(run(backend(), problem, Activation::kNone, {}).empty());
}

// Large enough that threads share the work, by rows and by panels.
TEST_P(Matmul, MatchesReferenceWhenThreadsShare) {
  for (const int rows : {1, 3, 20, 40, 130}) {
    const Problem problem(rows, 256, 300, static_cast<uint32_t>(rows));
    expect_close(problem, Activation::kRelu,
                 run(backend(), problem, Activation::kRelu, all_rows(problem)));
  }
}

// Matmuls in one call have the bits of separate calls, whatever their sizes and precisions. There
// are more matmuls than one launch, or one turn of the threads, can share.
TEST_P(Matmul, SeveralAtOnceHaveTheBitsOfSeparateCalls) {
  std::vector<Precision> precisions = precisions_of(backend());
  precisions.push_back(backend().precise(Precision::kBf16));
  for (const int rows : {0, 1, 9, 40, 260}) {
    for (size_t mixed = 0; mixed <= precisions.size(); ++mixed) {
      std::vector<Problem> problems;
      for (const int out :
           {300, 1, 64, 1000, 17, 33, 128, 2, 8, 40, 700, 5, 16, 24, 32, 31, 9, 3}) {
        problems.emplace_back(rows, 100 + out % 7, out, static_cast<uint32_t>(out));
        problems.back().precision =
            precisions[mixed < precisions.size() ? mixed : problems.size() % precisions.size()];
      }
      std::vector<std::unique_ptr<Guarded>> x, y;
      std::vector<Weight> weights;
      std::vector<Product> products;
      for (const Problem& problem : problems) {
        x.push_back(std::make_unique<Guarded>(rows, problem.in, 1));
        y.push_back(std::make_unique<Guarded>(rows, problem.out, 1));
        for (int row = 0; row < rows; ++row) {
          const std::vector<float> from = problem.x_row(row);
          std::copy(from.begin(), from.end(), x.back()->row(row));
        }
        weights.push_back(problem.pack(backend()));
      }
      for (size_t i = 0; i < problems.size(); ++i) {
        products.push_back({x[i]->view(), &weights[i], Activation::kRelu, y[i]->view()});
      }
      backend().matmuls(products);
      for (size_t i = 0; i < problems.size(); ++i) {
        y[i]->expect_guards("matmuls");
        const auto alone = run(backend(), problems[i], Activation::kRelu, all_rows(problems[i]), 1);
        EXPECT_TRUE(same_bits(y[i]->values(), alone)) << rows << " rows, product " << i;
      }
    }
  }
}

class MatmulBits : public KernelTest {};

// Bits depend only on a row's own input, not on the other rows, its place or the threads.
TEST_P(MatmulBits, DoNotDependOnTheBatch) {
  struct Case {
    int in;
    Precision precision;
    bool in_bf16;
  };
  for (const auto& [in, precision, in_bf16] :
       {Case{37, Precision::kFp32, false}, Case{256, Precision::kFp32, false},
        Case{37, Precision::kFp32, true}, Case{256, Precision::kFp32, true},
        Case{37, Precision::kBf16, false}, Case{256, Precision::kBf16, false},
        Case{37, Precision::kInt8, false}, Case{256, Precision::kInt8, false}}) {
    if (backend().numerics(precision).empty()) continue;
    Problem problem(140, in, 270, static_cast<uint32_t>(in));
    problem.precision = precision;
    problem.in_bf16 = in_bf16;
    const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
    const std::vector<float> truth = run(*single, problem, Activation::kGelu, all_rows(problem));
    std::mt19937 generator(5);
    for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 25, 40, 64, 139, 140}) {
      std::vector<int> chosen = all_rows(problem);
      std::shuffle(chosen.begin(), chosen.end(), generator);
      chosen.resize(rows);
      const std::vector<float> found = run(backend(), problem, Activation::kGelu, chosen, rows % 4);
      for (int i = 0; i < rows; ++i) {
        const auto at = [&](const std::vector<float>& from, int row) {
          return std::vector<float>(from.begin() + int64_t{row} * problem.out,
                                    from.begin() + int64_t{row + 1} * problem.out);
        };
        ASSERT_TRUE(same_bits(at(found, i), at(truth, chosen[i]))) << rows << " rows, row " << i;
      }
    }
  }
}

TEST_P(Matmul, ReluPassesNansThrough) {
  for (const Precision precision : precisions_of(backend())) {
    Problem problem(1, 4, 5, 9);
    problem.precision = precision;
    problem.x[1] = NAN;
    // cuBLASLt does not document this case: its relu may turn a NaN into 0.
    const bool may_end = GetParam().library && GetParam().place == SetupDevice::kCuda;
    for (const float y : run(backend(), problem, Activation::kRelu, {0})) {
      EXPECT_TRUE(std::isnan(y) || (may_end && y == 0.0F));
    }
  }
}

TEST_P(Matmul, GeluIsAccurateEverywhere) {
  // The first of four outputs is gelu of the first input: cuBLASLt rejects a layer of one output.
  constexpr int kWidth = 4;
  const std::array<float, kWidth * kWidth> first = {1.0F};
  const Weight weight = backend().pack({first.data(), kWidth, kWidth}, {}, Precision::kFp32);
  constexpr int kCount = 40001;
  Guarded x(kCount, kWidth);
  Guarded y(kCount, kWidth);
  for (int i = 0; i < kCount; ++i) {
    for (int k = 0; k < kWidth; ++k) x.at(i, k) = 0.0F;
    x.at(i, 0) = static_cast<float>(i - 20000) * 0.001F;
  }
  backend().matmul(x.view(), weight, Activation::kGelu, y.view());
  for (int i = 0; i < kCount; ++i) {
    const double at = x.at(i, 0);
    const double expected = reference::activate(Activation::kGelu, at);
    ASSERT_NEAR(y.at(i, 0), expected, 3e-7 * std::max(1.0, std::abs(at))) << at;
  }
}

// ---- epilogues ----------------------------------------------------------------------------------

class MatmulEnd : public KernelTest {};

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSquaredRelu:
      return x > 0 ? x * x : 0;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    default:
      return reference::activate(activation, x);
  }
}

constexpr Activation kAllActivations[] = {
    Activation::kNone, Activation::kRelu,    Activation::kGelu, Activation::kSquaredRelu,
    Activation::kTanh, Activation::kSigmoid, Activation::kSilu};

TEST_P(MatmulEnd, ActivationsAreAccurateEverywhere) {
  // A 1 x 1 layer of weight 1: y = act(x).
  const float one = 1.0F;
  const Weight weight = backend().pack({&one, 1, 1}, {}, Precision::kFp32);
  constexpr int kCount = 40001;
  Guarded x(kCount, 1);
  Guarded y(kCount, 1);
  for (int i = 0; i < kCount; ++i) x.at(i, 0) = static_cast<float>(i - 20000) * 0.005F;
  for (const Activation activation : kAllActivations) {
    backend().matmul(x.view(), weight, activation, y.view());
    for (int i = 0; i < kCount; ++i) {
      const double expected = activated(activation, x.at(i, 0));
      ASSERT_NEAR(y.at(i, 0), expected, 3e-7 * std::max(1.0, std::abs(expected))) << x.at(i, 0);
    }
  }
}

// The epilogue applies the same operations to the sums, wherever `times` and `plus` are stored.
TEST_P(MatmulEnd, MultipliesAndAdds) {
  for (const Precision precision : precisions_of(backend())) {
    for (const int rows : {1, 2, 9, 40, 130}) {
      for (const int out : {1, 17, 32, 33, 100, 300}) {
        Problem problem(rows, 19, out, static_cast<uint32_t>(rows + out));
        problem.precision = precision;
        const Weight weight = problem.pack(backend());
        Guarded x(rows, 19, 1), times(rows, out, 2), plus(rows, out, 3), y(rows, out, 1);
        x.fill(problem.x);
        times.fill(random_floats(int64_t{rows} * out, 8));
        plus.fill(random_floats(int64_t{rows} * out, 9));
        for (const Activation activation : kAllActivations) {
          backend().matmul(x.view(), weight, activation, y.view());
          const std::vector<float> plain = y.values();
          const auto expect = [&](const End& end, Guarded& to, bool multiplies, bool adds) {
            const std::vector<float> factors = times.values();
            const std::vector<float> terms = plus.values();
            backend().matmul(x.view(), weight, end, to.view());
            to.expect_guards("matmul");
            std::vector<float> expected = plain;
            for (size_t i = 0; i < expected.size(); ++i) {
              if (multiplies) expected[i] *= factors[i];
              if (adds) expected[i] += terms[i];
            }
            ASSERT_TRUE(same_bits(to.values(), expected)) << rows << " x " << out;
          };
          expect({activation, times.view()}, y, true, false);
          expect({activation, {}, plus.view()}, y, false, true);
          expect({activation, times.view(), plus.view()}, y, true, true);
          // In place, as a residual.
          Guarded residual = plus;
          expect({activation, times.view(), residual.view()}, residual, true, true);
        }
      }
    }
  }
}

// A factor or a term with a stride of 0 is one row, which all rows use.
TEST_P(MatmulEnd, OneRowServesAllRows) {
  for (const Precision precision : precisions_of(backend())) {
    for (const int rows : {1, 5, 40, 130}) {
      for (const int out : {17, 100}) {
        Problem problem(rows, 19, out, static_cast<uint32_t>(rows + out));
        problem.precision = precision;
        const Weight weight = problem.pack(backend());
        Guarded x(rows, 19), times(rows, out), plus(rows, out), whole(rows, out), y(rows, out, 1);
        x.fill(problem.x);
        const std::vector<float> factors = random_floats(out, 8);
        const std::vector<float> terms = random_floats(out, 9);
        for (int row = 0; row < rows; ++row) {
          std::ranges::copy(factors, times.row(row));
          std::ranges::copy(terms, plus.row(row));
        }
        backend().matmul(x.view(), weight, {Activation::kSilu, times.view(), plus.view()},
                         whole.view());
        Guarded one(2, out);
        std::ranges::copy(factors, one.row(0));
        std::ranges::copy(terms, one.row(1));
        const auto spread = [&](int row) { return View{one.row(row), DType::kF32, rows, out, 0}; };
        backend().matmul(x.view(), weight, {Activation::kSilu, spread(0), spread(1)}, y.view());
        y.expect_guards("matmul");
        EXPECT_TRUE(same_bits(y.values(), whole.values())) << rows << " x " << out;
      }
    }
  }
}

// Each of several matmuls has its own epilogue.
TEST_P(MatmulEnd, SeveralAtOnceHaveTheirOwnEpilogues) {
  constexpr int kIn = 64;
  for (const Precision precision : precisions_of(backend())) {
    for (const int rows : {1, 7, 33}) {
      std::vector<Weight> weights;
      std::vector<Guarded> out, times, plus;
      Guarded x(rows, kIn);
      x.fill(random_floats(int64_t{rows} * kIn, 1));
      for (uint32_t i = 0; i < std::size(kAllActivations); ++i) {
        const int width = 70 - 9 * static_cast<int>(i);
        Problem problem(rows, kIn, width, i);
        problem.precision = precision;
        weights.push_back(problem.pack(backend()));
        out.emplace_back(rows, width, 1);
        times.emplace_back(rows, width, 2);
        plus.emplace_back(rows, width, 3);
        times.back().fill(random_floats(int64_t{rows} * width, i + 1));
        plus.back().fill(random_floats(int64_t{rows} * width, i + 2));
      }
      std::vector<Guarded> alone = plus;
      std::vector<Product> products;
      for (size_t i = 0; i < weights.size(); ++i) {
        // Some multiply, some add, and some are in-place residuals.
        const View factors = i % 2 == 0 ? times[i].view() : View{};
        const auto product = [&](Guarded& terms, Guarded& to) {
          return Product{
              x.view(), &weights[i], {kAllActivations[i], factors, terms.view()}, to.view()};
        };
        const bool in_place = i % 3 == 0;
        products.push_back(product(plus[i], in_place ? plus[i] : out[i]));
        const Product one = product(alone[i], alone[i]);
        backend().matmul(one.x, *one.weight, one.end, one.out);
      }
      backend().matmuls(products);
      for (size_t i = 0; i < weights.size(); ++i) {
        Guarded& found = i % 3 == 0 ? plus[i] : out[i];
        found.expect_guards("matmuls");
        EXPECT_TRUE(same_bits(found.values(), alone[i].values())) << rows << " rows, product " << i;
      }
    }
  }
}

// A product with two weights has the bits of two products, both alone and among others.
TEST_P(MatmulEnd, ASecondWeightIsAProductThatMultiplies) {
  for (const Precision precision : precisions_of(backend())) {
    for (const int in : {3, 33, 64, 256}) {
      for (const int out : {1, 9, 40, 300, 1100}) {
        Problem gate(130, in, out, static_cast<uint32_t>(in + out));
        Problem up(130, in, out, static_cast<uint32_t>(in * out + 3), out % 2 == 0);
        gate.precision = up.precision = precision;
        const Weight gates = gate.pack(backend());
        const Weight ups = up.pack(backend());
        for (const int rows : {0, 1, 5, 17, 40, 130}) {
          // Once, there are enough blocks for the largest tiles of a GPU.
          if (rows == 130 && (in != 33 || out != 1100)) continue;
          const Activation activation = kAllActivations[(in + out + rows) % 7];
          Guarded x(rows, in, rows % 2);
          x.fill({gate.x.begin(), gate.x.begin() + int64_t{rows} * in});
          Guarded expected(rows, out, 1), found(rows, out, 2), other(rows, out, 3);
          backend().matmul(x.view(), gates, activation, expected.view());
          backend().matmul(x.view(), ups, {Activation::kNone, expected.view()}, expected.view());
          const Product both[] = {{x.view(), &gates, activation, found.view(), &ups},
                                  {x.view(), &ups, Activation::kNone, other.view()}};
          backend().matmuls({both, 1});
          found.expect_guards("matmuls");
          ASSERT_TRUE(same_bits(found.values(), expected.values())) << rows << " x " << out;
          Guarded again(rows, out);
          std::swap(found, again);
          const Product among[] = {both[1], {x.view(), &gates, activation, found.view(), &ups}};
          backend().matmuls(among);
          ASSERT_TRUE(same_bits(found.values(), expected.values())) << rows << " x " << out;
          backend().matmul(x.view(), ups, Activation::kNone, expected.view());
          ASSERT_TRUE(same_bits(other.values(), expected.values())) << rows << " x " << out;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MatmulEnd, testing::ValuesIn(all_backends()), setup_name);

INSTANTIATE_TEST_SUITE_P(Backends, Matmul, testing::ValuesIn(all_backends()), setup_name);
INSTANTIATE_TEST_SUITE_P(Libraries, Matmul, testing::ValuesIn(library_backends()), setup_name);
INSTANTIATE_TEST_SUITE_P(Backends, MatmulBits, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
