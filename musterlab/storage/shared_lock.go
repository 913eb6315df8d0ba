// A lab has one driver on each node and one folder of volumes for all of them. The driver reads its state once and keeps
// it, as the only one of a cluster would; here each call reads it anew, while the drivers of other nodes wait.

package hostpath

import (
	"os"
	"path"
	"sync"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/kubernetes-csi/csi-driver-host-path/pkg/state"
)

type sharedLock struct {
	calls  sync.Mutex
	driver *hostPath
	file   *os.File
}

func (l *sharedLock) Lock() {
	l.calls.Lock()
	folder := l.driver.config.StateDir
	file, err := os.OpenFile(path.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0600)
	if err != nil {
		klog.Fatalf("the lock of all nodes cannot be opened: %v", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		klog.Fatalf("the lock of all nodes cannot be taken: %v", err)
	}
	current, err := state.New(path.Join(folder, "state.json"))
	if err != nil {
		klog.Fatalf("what other nodes wrote cannot be read: %v", err)
	}
	l.file, l.driver.state = file, current
}

func (l *sharedLock) Unlock() {
	l.file.Close()
	l.calls.Unlock()
}
