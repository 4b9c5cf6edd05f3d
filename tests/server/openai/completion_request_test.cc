// Checks the properties of tests/fuzz for completion requests.

#include "server/openai/completion_request.h"

#include "tests/fuzz/request_properties.h"
#include "tests/fuzz/walk.h"

namespace runnel {
namespace {

TEST(RequestsFuzz, CompletionProperties) {
  const int accepted =
      walk(completion_seeds(), Mutator(9, completion_words()), check_completion_request);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace runnel
