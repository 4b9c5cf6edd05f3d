#include "server/process/notify_ready.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// A socket that systemd would read.
class Reader {
 public:
  // `name`: as in NOTIFY_SOCKET.
  explicit Reader(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (name.front() == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), length), 0);
  }
  ~Reader() { ::close(socket_); }

  // The next message, or "" if none has arrived.
  std::string read() const {
    std::array<char, 100> text = {};
    const ssize_t bytes = ::recv(socket_, text.data(), text.size(), MSG_DONTWAIT);
    return bytes < 0 ? "" : std::string(text.data(), static_cast<size_t>(bytes));
  }

 private:
  const int socket_;
};

class NotifyReady : public ::testing::Test {
 protected:
  ~NotifyReady() override { ::unsetenv("NOTIFY_SOCKET"); }
  static Status notify(const std::string& name) {
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    return notify_ready();
  }

  const TempDir dir_;
};

TEST_F(NotifyReady, TheSocketGetsOneMessage) {
  for (const std::string& name : {dir_.path() + "/socket", "@runnel" + dir_.path()}) {
    const Reader reader(name);
    EXPECT_EQ(reader.read(), "");
    EXPECT_TRUE(notify(name).ok()) << name;
    EXPECT_EQ(reader.read(), "READY=1") << name;
    EXPECT_EQ(reader.read(), "");
  }
}

TEST_F(NotifyReady, WithoutASocketNothingHappens) {
  EXPECT_TRUE(notify("").ok());
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(notify_ready().ok());
}

TEST_F(NotifyReady, AFailureSaysWhatIsWrong) {
  EXPECT_THAT(notify(dir_.path() + "/none").message(),
              HasSubstr("could not be told that the server is ready: No such file"));
  EXPECT_THAT(notify(std::string(200, 'x')).message(), HasSubstr("is too long for a unix socket"));
}

}  // namespace
}  // namespace runnel
