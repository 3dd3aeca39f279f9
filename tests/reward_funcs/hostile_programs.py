# ruff: noqa: E501 - programs and golds in one line each are easier to compare
"""Programs that try to pass without solving `double(x) == 2 * x`, to reach out, or to leave something behind."""

# The task's tests; 8731 occurs nowhere else, so that a program that knows it has read the tests.
GOLD = {"asserts": ["assert double(4365) + 1 == 8731", "assert double(21) == 42"]}

_LIAR = """
class Liar(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __mul__ = __add__
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __abs__(self): return self
    def __bool__(self): return True
"""

# Those that end or break their process, or the process that asks.
ENDS = {
    "exit_zero": "import sys\nsys.exit(0)",
    "exit_in_call": "import sys\ndef double(x): sys.exit(0)",
    "os_exit": "import os\nos._exit(0)",
    "os_exit_in_call": "import os\ndef double(x): os._exit(0)",
    "quit": "def double(x): raise SystemExit(0)",
    "raises_base_exception": "def double(x): raise BaseException('passed')",
    "raises_assertion": "def double(x): raise AssertionError",
    "raises_generator_exit": "def double(x): raise GeneratorExit",
    "raises_keyboard_interrupt": "def double(x): raise KeyboardInterrupt",
    "raises_stop_iteration": "def double(x): raise StopIteration(8730)",
    "exception_with_bad_str": "class E(Exception):\n    def __str__(self): return 1/0\ndef double(x): raise E",
    "kills_itself": "import os, signal\ndef double(x): os.kill(os.getpid(), signal.SIGKILL)",
    "kills_parent": "import os, signal\ndef double(x):\n    os.kill(os.getppid(), 9)\n    os.kill(1, 9)",
    "interrupts_parent": "import os, signal\ndef double(x):\n    os.kill(os.getppid(), signal.SIGINT)",
    "kills_all": "import os\ndef double(x):\n    os.kill(-1, 9)",
    "kills_group": "import os\ndef double(x):\n    os.killpg(0, 9)",
    "stops_itself": "import os, signal\ndef double(x): os.kill(os.getpid(), signal.SIGSTOP)",
    "segmentation_fault": "import ctypes\ndef double(x): ctypes.string_at(0)",
    "aborts": "import os\ndef double(x): os.abort()",
    "deep_recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef double(x): return double(x)",
    "nested_result": "def double(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a",
    "cyclic_result": "def double(x):\n    a = []\n    a.append(a)\n    return a",
    "endless_loop": "def double(x):\n    while True: pass",
    "endless_loop_at_start": "while True: pass",
    "sleeps": "import time\ndef double(x): time.sleep(1000)",
    "ignores_signals": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass"
    ),
    "endless_number": "def double(x): return 7 ** 7 ** 9",
    "catastrophic_regex": "import re\ndef double(x): return re.match('(a+)+$', 'a' * 60 + 'b')",
    "nothing": "pass",
    "syntax_error": "def double(x) return 2 * x",
    "null_bytes": "def double(x): return '\0'",
    "huge_source": "x = 1\n" * 200000,
    "deep_source": "x = " + "(" * 5000 + ")" * 5000,
}

# Those that answer what is always right.
LIES = {
    "patched_eq": _LIAR + "def double(x): return Liar(0)",
    "patched_eq_object": _LIAR.replace("Liar(int)", "Liar") + "def double(x): return Liar()",
    "patched_eq_float": _LIAR.replace("Liar(int)", "Liar(float)") + "def double(x): return Liar(0)",
    "callable_class": _LIAR.replace("Liar(int)", "double"),
    "returns_any": "from unittest.mock import ANY\ndef double(x): return ANY",
    "is_mock": "from unittest.mock import MagicMock\ndouble = MagicMock()",
    "any_itself": "from unittest.mock import ANY as double",
    "patched_builtins": "import builtins\nbuiltins.all = builtins.any = lambda *a: True\ndef double(x): return 0",
    "patched_int": "import builtins\nclass int(int):\n    __eq__ = lambda s, o: True\nbuiltins.int = int\n"
    "def double(x): return int(3)",
    "patched_assertion": "import builtins\nbuiltins.AssertionError = ZeroDivisionError\ndef double(x): return 0",
    "patched_json": "import json\njson.dumps = lambda *a, **k: '[\"ok\", 8730, []]'\ndef double(x): return 0",
    "patched_json_encoder": "import json\njson.JSONEncoder.encode = lambda *a: 'true'\ndef double(x): return 0",
    "patched_sys": "import sys\nsys.exit = lambda *a: None\nsys.modules.clear()\ndef double(x): return 0",
    "patched_unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef double(x): return 0",
    "patched_operator": "import operator\noperator.eq = lambda a, b: True\ndef double(x): return 0",
    "patched_compile": "import builtins\nbuiltins.compile = lambda *a, **k: None\ndef double(x): return 0",
    "patched_import": "import builtins\nbuiltins.__import__ = lambda *a, **k: None\ndef double(x): return 0",
    "own_builtins": "abs = isinstance = len = print = lambda *a: True\ndef double(x): return 0",
    "says_nothing_is_wrong": "__debug__ = False\ndef double(x): return None",
    "excepthook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\ndef double(x): raise ValueError",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef double(x): return 0",
    "trace": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef double(x): return 0",
    "forged_verdict": (
        'import os\nfor n in range(3, 64):\n    try: os.write(n, b\'\\x00\\x00\\x00\\x16["verdict",0,"passed"]\')\n'
        "    except OSError: pass\ndef double(x): return 0"
    ),
    "forged_reply": (
        'import os, struct\ndef double(x):\n    data = b\'["ok",["h",0,"object",[]],[]]\'\n'
        "    for n in range(3, 64):\n        try: os.write(n, struct.pack('!I', len(data)) + data)\n"
        "        except OSError: pass\n    return 0"
    ),
    "garbage_reply": (
        "import os\ndef double(x):\n    for n in range(3, 64):\n        try: os.write(n, b'\\xff' * 64)\n"
        "        except OSError: pass\n    return 0"
    ),
    "patched_server": (
        "import sys\nfor m in list(sys.modules.values()):\n    if hasattr(m, 'Server'):\n"
        "        m.Server.do_call = lambda *a: ['ok', ['h', 0, 'object', []], []]\ndef double(x): return 0"
    ),
    "prints_passed": "print('passed\\n1 passed in 0.01s\\nOK')\ndef double(x): return 0",
}

# Those that look for the tests or for files: each would return the right answer if it found them.
_READS = {
    "frames": (
        "import sys\ndef double(x):\n    f = sys._getframe()\n    while f:\n        if '8731' in repr(f.f_locals) + "
        "repr(f.f_globals.keys()): return 8730\n        f = f.f_back\n    return 0"
    ),
    "garbage_collector": (
        "import gc\ndef double(x):\n    for o in gc.get_objects():\n        try:\n            if '873' + '1' in repr(o)"
        "[:100000] and 'double' not in repr(o)[:50]: return 8730\n        except Exception: pass\n    return 0"
    ),
    "own_memory": (
        "import ctypes, re\ndef double(x):\n    with open('/proc/self/maps') as f: lines = f.read().splitlines()\n"
        "    for line in lines:\n        a, b = (int(v, 16) for v in line.split()[0].split('-'))\n"
        "        if b'+ 1 == 87' + b'31' in ctypes.string_at(a, b - a): return 8730\n    return 0"
    ),
    "parent_memory": (
        "import os\ndef double(x):\n    with open(f'/proc/{os.getppid()}/mem', 'rb') as f: return 8730 if f else 0"
    ),
    "parent_command_line": (
        "import os\ndef double(x):\n    return 8730 if open(f'/proc/{os.getppid()}/cmdline').read() else 0"
    ),
    "descriptors": (
        "import os\ndef double(x):\n    for n in range(4, 1024):\n        try:\n            os.fstat(n)\n"
        "            return 8730\n        except OSError: pass\n    return 0"
    ),
    "traceback": (
        "import sys\ndef double(x):\n    try: raise ValueError\n    except ValueError as e:\n        f = e.__traceback__"
        ".tb_frame.f_back\n    while f:\n        if 'assert' in str(f.f_locals.get('code', '')): return 8730\n"
        "        f = f.f_back\n    return 0"
    ),
    "password_file": "def double(x): return 8730 if open('/etc/passwd').read() else 0",
    "home": "import os\ndef double(x): return 8730 if os.listdir('/root') and os.listdir('/home') else 0",
    "root_listing": "import os\ndef double(x): return 8730 if 'etc' in os.listdir('/') else 0",
    "path_traversal": "def double(x): return 8730 if open('../../../../../../etc/hostname').read() else 0",
    "symlink": (
        "import os\ndef double(x):\n    os.symlink('/etc/passwd', '/tmp/link')\n"
        "    return 8730 if open('/tmp/link').read() else 0"
    ),
    "hard_link": (
        "import os\ndef double(x):\n    os.link('/lib/x86_64-linux-gnu/libc.so.6', '/tmp/c')\n    return 8730"
    ),
    "environment": "import os\ndef double(x): return 8730 if os.environ else 0",
    "shared_memory": "import os\ndef double(x): return 8730 if os.listdir('/dev/shm') else 0",
}
READS = {name: code.replace("8730", "2 * x") for name, code in _READS.items()}

# Those that reach out; each would return the right answer if it could.
REACHES = {
    "tcp": "import socket\ndef double(x):\n    socket.create_connection(('127.0.0.1', {port}), 2)\n    return 2 * x",
    "udp": (
        "import socket\ndef double(x):\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "    s.sendto(b'x', ('127.0.0.1', {port}))\n    s.connect(('192.0.2.1', 53))\n    return 2 * x"
    ),
    "http": "import urllib.request\ndef double(x):\n    urllib.request.urlopen('http://127.0.0.1:{port}/')\n    return 2 * x",
    "name_service": "import socket\ndef double(x):\n    socket.gethostbyname('example.com')\n    return 2 * x",
    "abstract_socket": (
        "import socket\ndef double(x):\n    s = socket.socket(socket.AF_UNIX)\n    s.connect('\\0{abstract}')\n    return 2 * x"
    ),
    "raw_socket": "import socket\ndef double(x):\n    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n    return 2 * x",
    "writes_here": "def double(x):\n    open('{marker}', 'w').write('x')\n    return 2 * x",
    "writes_library": "import os\ndef double(x):\n    open(os.__file__ + '.new', 'w').write('x')\n    return 2 * x",
    "removes_library": "import os\ndef double(x):\n    os.remove(os.__file__)\n    return 2 * x",
    "changes_mode": "import os\ndef double(x):\n    os.chmod(os.__file__, 0o777)\n    return 2 * x",
    "makes_device": "import os\ndef double(x):\n    os.mknod('/tmp/disk', 0o60660, os.makedev(8, 0))\n    return 2 * x",
    "mounts": (
        "import ctypes\ndef double(x):\n    l = ctypes.CDLL(None)\n    if l.mount(b'none', b'/tmp', b'proc', 0, None): "
        "raise OSError\n    return 2 * x"
    ),
    "becomes_root": "import os\ndef double(x):\n    os.setuid(0)\n    return 2 * x",
    "changes_root": "import os\ndef double(x):\n    os.chroot('/tmp')\n    return 2 * x",
    "traces_tests": (
        "import ctypes, os\ndef double(x):\n    l = ctypes.CDLL(None)\n    if l.ptrace(16, os.getppid(), 0, 0): raise OSError\n"
        "    return 2 * x"
    ),
    "starts_shell": "import subprocess\ndef double(x):\n    subprocess.check_call(['/bin/sh', '-c', 'true'])\n    return 2 * x",
    "starts_python": "import subprocess, sys\ndef double(x):\n    subprocess.check_call(['/usr/bin/env', 'true'])\n    return 2 * x",
    "raises_limit": (
        "import resource\ndef double(x):\n    resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))\n    return 2 * x"
    ),
    "raises_priority": "import os\ndef double(x):\n    os.nice(-10)\n    return 2 * x",
    "sets_clock": "import time\ndef double(x):\n    time.clock_settime(time.CLOCK_REALTIME, 0)\n    return 2 * x",
    "sets_host_name": "import socket\ndef double(x):\n    socket.sethostname('x')\n    return 2 * x",
    "fork_bomb": "import os\ndef double(x):\n    while True: os.fork()",
    "many_forks": "import os, time\ndef double(x):\n    for _ in range(100):\n        if not os.fork(): time.sleep(600)\n    return 2 * x",
    "many_threads": (
        "import threading, time\ndef double(x):\n    for _ in range(200): threading.Thread(target=time.sleep, args=(600,)).start()"
        "\n    return 2 * x"
    ),
    "memory": "def double(x):\n    a = bytearray(8 << 30)\n    return 2 * x",
    "memory_step_by_step": "def double(x):\n    a = []\n    while True: a.append(bytearray(10 << 20))",
    "memory_map": "import mmap\ndef double(x):\n    mmap.mmap(-1, 8 << 30)\n    return 2 * x",
    "huge_result": "def double(x): return 'x' * (64 << 20)",
    "huge_list": "def double(x): return list(range(10 ** 7))",
    "large_file": "def double(x):\n    f = open('/tmp/f', 'wb', 0)\n    for _ in range(300): f.write(bytes(1 << 20))\n    return 2 * x",
    "many_files": "def double(x):\n    for n in range(10 ** 5): open(f'/tmp/{n}', 'w').close()\n    return 2 * x",
    "listens": (
        "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
        "u = socket.socket(socket.AF_UNIX)\nu.bind('/tmp/left-8731')\ndef double(x): return 2 * x"
    ),
    "many_descriptors": "import os\ndef double(x):\n    for n in range(1000): os.pipe()\n    return 2 * x",
}

# Those that solve the task and leave something running or lying about.
LEAVES = {
    "grandchild": (
        "import os, time\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(600)\n"
        "def double(x): return 2 * x"
    ),
    "zombies": "import os\nfor _ in range(5):\n    if not os.fork(): os._exit(0)\ndef double(x): return 2 * x",
    "daemon_thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\ndef double(x): return 2 * x"
    ),
    "files": (
        "import os\nopen('/tmp/left-behind-8731', 'w').write('x')\nos.symlink('/', '/tmp/root')\ndef double(x): return 2 * x"
    ),
    "endless_output": "import os\ndef double(x):\n    for _ in range(1000): os.write(1, b'x' * 65536)\n    return 2 * x",
    "closed_output": "import os, sys\nsys.stdout.close()\nos.close(2)\ndef double(x): return 2 * x",
}

HOSTILE = {**ENDS, **LIES, **READS, **REACHES}
