#include "server/net/listen_socket.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

// Exit codes of a process that cannot run its test.
constexpr int kNoNetwork = 77, kNoHostsFile = 78;

TEST(ListenSocket, KnowsWhetherOtherMachinesReachIt) {
  EXPECT_TRUE(listen_on("127.0.0.1:0")->on_loopback);
  EXPECT_TRUE(listen_on("localhost:0")->on_loopback);
  EXPECT_FALSE(listen_on("0.0.0.0:0")->on_loopback);
  EXPECT_FALSE(listen_on("[::]:0")->on_loopback);
}

// Gives this process a network of its own, in which the system chooses ports between 40000 and
// 40007, and a hosts file of its own. False if this user may not.
bool enter_small_network(const std::string& hosts) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
  if (mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) return false;
  const Descriptor any(socket(AF_INET, SOCK_DGRAM, 0));
  ifreq loopback{};
  std::string("lo").copy(loopback.ifr_name, IFNAMSIZ - 1);
  loopback.ifr_flags = IFF_UP;
  if (ioctl(any.get(), SIOCSIFFLAGS, &loopback) != 0) return false;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << "40000 40007" << std::flush;
  return range.good();
}

// Whether a name of the hosts file is found. A machine reads this file only if /etc/nsswitch.conf
// says so.
bool resolves(const char* name) {
  addrinfo* found = nullptr;
  if (getaddrinfo(name, nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

// Runs `test` in a process with a small network, and expects that it returns 0.
void expect_in_small_network(int (*test)()) {
  const TestFolder folder;
  const std::string hosts = folder.write(
      "hosts", "127.0.0.1 two\n127.0.0.2 two\n127.0.0.1 repeated\n127.0.0.1 repeated\n");
  const pid_t child = fork();
  if (child == 0) {
    if (!enter_small_network(hosts)) _exit(kNoNetwork);
    _exit(resolves("two") ? test() : kNoHostsFile);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNetwork) GTEST_SKIP() << "this user may not make a network";
  if (WEXITSTATUS(status) == kNoHostsFile) GTEST_SKIP() << "this machine reads no hosts file";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// 40007 is the only port that is free at both addresses of the name "two".
int listen_where_one_port_is_free() {
  std::vector<ListenSockets> others;
  for (int port = 40000; port < 40007; ++port) {
    const std::string host = port % 2 == 0 ? "127.0.0.1:" : "127.0.0.2:";
    others.push_back(listen_on(host + std::to_string(port)).value());
  }
  for (int i = 0; i < 10; ++i) {  // the system chooses at random
    const Result<ListenSockets> both = listen_on("two:0");
    if (!both.ok() || both->sockets.size() != 2 || both->address != "two:40007") return 1;
  }
  others.push_back(listen_on("127.0.0.2:40007").value());
  return listen_on("two:0").ok() ? 2 : 0;
}

TEST(ListenSocket, ChoosesAPortThatIsFreeAtAllAddressesOfAName) {
  expect_in_small_network(listen_where_one_port_is_free);
}

int listen_at_repeated_address() {
  for (const char* const address : {"repeated:0", "repeated:40000"}) {
    const Result<ListenSockets> all = listen_on(address);
    if (!all.ok() || all->sockets.size() != 1) return 1;
  }
  return 0;
}

TEST(ListenSocket, ListensOnceAtAnAddressThatANameHasTwice) {
  expect_in_small_network(listen_at_repeated_address);
}

}  // namespace
}  // namespace runnel
