#include "cli/interrupt.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>

#include "cli/console.h"

namespace runnel {
namespace {

[[noreturn]] void end_by_a_signal() {
  dup2(STDERR_FILENO, STDOUT_FILENO);  // the test sees only standard error
  Interrupt interrupt([] {});
  interrupt.restores("as before");
  interrupt.end_at_once(true);
  kill(getpid(), SIGINT);
  while (true) pause();
}

TEST(InterruptDeathTest, RestoresTheTerminalBeforeItEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_by_a_signal(), testing::ExitedWithCode(kExitInterrupted), "as before");
}

}  // namespace
}  // namespace runnel
