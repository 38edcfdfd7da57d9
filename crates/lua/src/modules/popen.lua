-- popen: other programs as children, with pipes. A call waits for the child in steps, so that other fibers run meanwhile.
local ffi = require('ffi')
local fiber = require('fiber')
local clock = require('clock')
local errno = require('errno')
local errors = require('lycosa.box.error')

ffi.cdef([[
    typedef struct { char opaque[256]; } lycosa_file_actions;
    typedef struct { char opaque[512]; } lycosa_spawn_attributes;
    int posix_spawnp(int *pid, const char *file, const lycosa_file_actions *actions,
        const lycosa_spawn_attributes *attributes, const char *const argv[], const char *const envp[]);
    int posix_spawn_file_actions_init(lycosa_file_actions *actions);
    int posix_spawn_file_actions_destroy(lycosa_file_actions *actions);
    int posix_spawn_file_actions_adddup2(lycosa_file_actions *actions, int from, int to);
    int posix_spawn_file_actions_addclose(lycosa_file_actions *actions, int fd);
    int posix_spawn_file_actions_addopen(lycosa_file_actions *actions, int fd, const char *path, int flags, unsigned mode);
    int posix_spawnattr_init(lycosa_spawn_attributes *attributes);
    int posix_spawnattr_destroy(lycosa_spawn_attributes *attributes);
    int posix_spawnattr_setflags(lycosa_spawn_attributes *attributes, short flags);
    int lycosa_pipe2(int fds[2], int flags) __asm__("pipe2");
    int lycosa_popen_close(int fd) __asm__("close");
    long lycosa_popen_read(int fd, void *buffer, size_t count) __asm__("read");
    long lycosa_popen_write(int fd, const void *buffer, size_t count) __asm__("write");
    int lycosa_popen_fcntl(int fd, int command, ...) __asm__("fcntl");
    int lycosa_popen_kill(int pid, int signal) __asm__("kill");
    int waitpid(int pid, int *status, int options);
    extern char **environ;
]])

local C = ffi.C
local O_RDWR, O_NONBLOCK, O_CLOEXEC = 2, 0x800, 0x80000
local F_SETFL, WNOHANG, SETSID = 4, 1, 0x80
local EAGAIN, EINTR, EPIPE, ESRCH = 11, 4, 32, 3
local READ_SIZE = 64 * 1024
local FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.02
local STREAMS = { stdin = 0, stdout = 1, stderr = 2 }

local popen = {
    opts = { INHERIT = 'inherit', DEVNULL = 'devnull', CLOSE = 'close', PIPE = 'pipe' },
    state = { ALIVE = 'alive', EXITED = 'exited', SIGNALED = 'signaled' },
    stream = { OPEN = 'open', CLOSED = 'closed' },
    signal = {
        SIGHUP = 1, SIGINT = 2, SIGQUIT = 3, SIGILL = 4, SIGTRAP = 5, SIGABRT = 6, SIGIOT = 6, SIGBUS = 7, SIGFPE = 8,
        SIGKILL = 9, SIGUSR1 = 10, SIGSEGV = 11, SIGUSR2 = 12, SIGPIPE = 13, SIGALRM = 14, SIGTERM = 15, SIGSTKFLT = 16,
        SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTIN = 21, SIGTTOU = 22, SIGURG = 23, SIGXCPU = 24,
        SIGXFSZ = 25, SIGVTALRM = 26, SIGPROF = 27, SIGWINCH = 28, SIGIO = 29, SIGPOLL = 29, SIGPWR = 30, SIGSYS = 31,
    },
}

local SIGNAL_NAMES = {}
for name, number in pairs(popen.signal) do
    if name ~= 'SIGIOT' and name ~= 'SIGPOLL' then SIGNAL_NAMES[number] = name end
end

-- The methods of a handle; what `info` shows are fields of it as well. A handle is userdata, and its state is here.
local handle = {}
local states = setmetatable({}, { __mode = 'k' })
local template = newproxy(true)
local handle_mt = getmetatable(template)
local FIELDS = { command = true, opts = true, status = true, stdin = true, stdout = true, stderr = true }
function handle_mt.__index(self, key)
    if type(key) ~= 'string' then errors.illegal_params('Bad params, use __index(ph, <string>)') end
    local method = handle[key]
    if method ~= nil then return method end
    local state = states[self]
    if state.closed then errors.illegal_params('Attempt to index a closed popen handle') end
    -- A child that has just ended keeps its number until its end has been looked at.
    if key == 'pid' then return not state.ended and state.child or nil end
    return FIELDS[key] and handle.info(self)[key] or nil
end
function handle_mt.__serialize(self)
    if states[self].closed then return '<closed popen handle>' end
    return handle.info(self)
end

-- Children whose handles were collected, until they have been waited for.
local orphans = {}
local function reap()
    for pid in pairs(orphans) do
        if C.waitpid(pid, nil, WNOHANG) ~= 0 then orphans[pid] = nil end
    end
end

-- Fails with the error object of a call of the system.
local function failed(number, text, ...) return nil, errors.system_error_as(number, text:format(...)) end

local function timed_out() return nil, errors.timed_out() end

-- Waits for `ready` to return something but nil, at most `timeout` seconds.
local function await(timeout, ready)
    local deadline = timeout and clock.monotonic() + timeout
    local pause = FIRST_PAUSE
    while true do
        local first, second = ready()
        if first ~= nil then return first, second end
        if deadline and clock.monotonic() >= deadline then return nil end
        fiber.sleep(pause)
        pause = math.min(pause * 2, LONGEST_PAUSE)
    end
end

-- Refuses a parameter of the wrong type.
local function check(value, kind, call, parameter, expected)
    if type(value) ~= kind then
        errors.illegal_params('%s: wrong parameter "%s": expected %s, got %s', call, parameter, expected or kind, type(value))
    end
end

local function check_optional(value, kind, call, parameter)
    if type(value) ~= 'nil' then check(value, kind, call, parameter, kind .. ' or nil') end
end

local function close_stream(self, name)
    local fd = self.fds[name]
    if fd then
        self.fds[name] = nil
        C.lycosa_popen_close(fd)
    end
end

local FLAGS = {
    shell = false, setsid = false, close_fds = true, restore_signals = true, group_signal = false, keep_child = false,
}

-- What becomes of a stream: the beginning of a word is enough.
local function action_of(given)
    for _, action in ipairs({ 'inherit', 'devnull', 'close', 'pipe' }) do
        if action:sub(1, #given) == given then return action end
    end
end

-- The options of a child, all of them, as `info` shows them.
local function all_options(opts)
    check_optional(opts, 'table', 'popen.new', 'opts')
    opts = opts or {}
    local all = {}
    for _, name in ipairs({ 'stdin', 'stdout', 'stderr' }) do
        local given = opts[name]
        check_optional(given, 'string', 'popen.new', 'opts.' .. name)
        all[name] = given == nil and 'inherit' or action_of(given)
        if not all[name] then
            errors.illegal_params('popen.new: wrong parameter "opts.%s": expected popen.opts.<...> constant, got %s', name, given)
        end
    end
    check_optional(opts.env, 'table', 'popen.new', 'opts.env')
    for name, value in pairs(opts.env or {}) do
        if type(name) ~= 'string' or type(value) ~= 'string' then
            errors.illegal_params('popen.new: wrong parameter "opts.env": expected {[<string>] = <string>, ...}, got a non-string key or value')
        end
    end
    for _, name in ipairs({ 'shell', 'setsid', 'close_fds', 'restore_signals', 'group_signal', 'keep_child' }) do
        check_optional(opts[name], 'boolean', 'popen.new', 'opts.' .. name)
        if opts[name] == nil then all[name] = FLAGS[name] else all[name] = opts[name] end
    end
    return all, opts.env
end

-- The type of a first argument as Tarantool names it.
local function check_first(kind, call, parameter, ...)
    if select('#', ...) == 0 then
        errors.illegal_params('%s: wrong parameter "%s": expected %s, got no value', call, parameter, kind)
    end
    check((...), kind, call, parameter)
end

function popen.new(...)
    local argv, opts = ...
    check_first('table', 'popen.new', 'argv', ...)
    reap()
    local options, environment = all_options(opts)
    opts = options
    local words = {}
    if opts.shell then words = { 'sh', '-c' } end
    for i = 1, #argv do
        check(argv[i], 'string', 'popen.new', ('argv[%d]'):format(i))
        words[#words + 1] = argv[i]
    end
    if opts.group_signal and not opts.setsid then errors.illegal_params('popen: group signal without setting sid') end
    if #words == 0 then errors.illegal_params('popen.new: wrong parameter "argv": expected a program, got an empty table') end

    local keep = {}
    local function texts(list)
        local array = ffi.new('const char *[?]', #list + 1)
        for i, text in ipairs(list) do
            keep[#keep + 1] = text
            array[i - 1] = text
        end
        return array
    end
    local envp = ffi.cast('const char *const *', C.environ)
    if environment then
        local list = {}
        for name, value in pairs(environment) do list[#list + 1] = ('%s=%s'):format(name, value) end
        envp = texts(list)
    end

    local actions, attributes = ffi.new('lycosa_file_actions'), ffi.new('lycosa_spawn_attributes')
    C.posix_spawn_file_actions_init(actions)
    C.posix_spawnattr_init(attributes)
    if opts.setsid then C.posix_spawnattr_setflags(attributes, SETSID) end
    local ours, theirs, number = {}, {}, 0
    for name, fd in pairs(STREAMS) do
        local kind = opts[name]
        if kind == 'devnull' then
            C.posix_spawn_file_actions_addopen(actions, fd, '/dev/null', O_RDWR, 0)
        elseif kind == 'close' then
            C.posix_spawn_file_actions_addclose(actions, fd)
        elseif kind == 'pipe' then
            local ends = ffi.new('int[2]')
            if C.lycosa_pipe2(ends, O_CLOEXEC) ~= 0 then
                number = ffi.errno()
                break
            end
            local mine, his = ends[0], ends[1]
            if fd == 0 then mine, his = his, mine end
            C.lycosa_popen_fcntl(mine, F_SETFL, ffi.cast('int', O_NONBLOCK))
            ours[name], theirs[#theirs + 1] = mine, his
            C.posix_spawn_file_actions_adddup2(actions, his, fd)
        end
    end
    local pid = ffi.new('int[1]')
    if number == 0 then number = C.posix_spawnp(pid, words[1], actions, attributes, texts(words), envp) end
    C.posix_spawn_file_actions_destroy(actions)
    C.posix_spawnattr_destroy(attributes)
    for _, fd in ipairs(theirs) do C.lycosa_popen_close(fd) end
    local shown = {}
    for i, word in ipairs(words) do shown[i] = word:find(' ', 1, true) and "'" .. word .. "'" or word end
    local self = { fds = ours, words = table.concat(shown, ' '), options = opts, ended = false, closed = false, child = false }
    if number ~= 0 then
        for name in pairs(STREAMS) do close_stream(self, name) end
        return failed(number, 'popen: can not start %s: %s', words[1], errno.strerror(number))
    end
    self.child = pid[0]
    local object = newproxy(template)
    states[object] = self
    return object
end

-- A handle that nothing holds any more is closed: its child is killed, unless it is to be kept.
function handle_mt.__gc(object)
    local self = states[object]
    if not self or self.closed then return end
    for name in pairs(STREAMS) do close_stream(self, name) end
    if self.ended or self.options.keep_child then return end
    C.lycosa_popen_kill(self.options.group_signal and -self.child or self.child, popen.signal.SIGKILL)
    orphans[self.child] = true
    -- A finalizer cannot wait for the child: a fiber does.
    fiber.new(function()
        while orphans[self.child] do
            reap()
            fiber.sleep(FIRST_PAUSE)
        end
    end)
end

function popen.shell(...)
    local command, mode = ...
    check_first('string', 'popen.shell', 'command', ...)
    check_optional(mode, 'string', 'popen.shell', 'mode')
    mode = mode or ''
    if mode:find('[^rwR]') then
        errors.illegal_params([[popen.shell: wrong parameter "mode": expected 'r', 'w', 'R' or its combination, got %s]], mode)
    end
    local function pipe(letter) return mode:find(letter, 1, true) and 'pipe' or 'inherit' end
    return popen.new({ command }, {
        shell = true, setsid = true, group_signal = true, stdin = pipe('w'), stdout = pipe('r'), stderr = pipe('R'),
    })
end

local USAGES = {
    signal = 'ph:signal(signo)', terminate = 'ph:terminate()', kill = 'ph:kill()', wait = 'ph:wait()',
    read = 'ph:read([{stdout = <boolean>, stderr = <boolean>, timeout = <number>}])',
    write = 'ph:write(str[, {timeout = <number>}])', info = 'ph:info()', close = 'ph:close()',
    shutdown = 'ph:shutdown({stdin = <boolean>, stdout = <boolean>, stderr = <boolean>})',
}

local function misused(method) errors.illegal_params('Bad params, use: %s', USAGES[method]) end

-- The state of a handle.
local function state_of(self, method) return type(self) == 'userdata' and states[self] or misused(method) end

local function check_open(self)
    if self.closed then errors.illegal_params('popen: attempt to operate on a closed handle') end
    return self
end

-- An option of a call; one of another type is refused with the call's usage.
local function option(opts, name, kind, method)
    local value = opts and opts[name]
    if value ~= nil and type(value) ~= kind or type(value) == 'cdata' then misused(method) end
    return value
end
local function options_of(opts, method)
    if type(opts) ~= 'nil' and type(opts) ~= 'table' then misused(method) end
    return opts
end
local function timeout_of(opts, method)
    local timeout = option(opts, 'timeout', 'number', method)
    if timeout and timeout < 0 then misused(method) end
    return timeout
end

-- What has become of the child; a child that has ended is waited for once.
local function status_of(self)
    if not self.ended and self.child then
        local status = ffi.new('int[1]')
        if C.waitpid(self.child, status, WNOHANG) == self.child then
            local number = status[0]
            local signal = bit.band(number, 0x7f)
            if signal == 0 then
                self.ended = { state = 'exited', exit_code = bit.band(bit.rshift(number, 8), 0xff) }
            else
                self.ended = { state = 'signaled', signo = signal, signame = SIGNAL_NAMES[signal] }
            end
        end
    end
    return self.ended or nil
end

local function send(self, signo)
    local function is_gone()
        return failed(ESRCH, 'Attempt to send a signal %d to a process that does not exist anymore', signo)
    end
    if status_of(self) then return is_gone() end
    local is_group = self.options.group_signal
    if C.lycosa_popen_kill(is_group and -self.child or self.child, signo) ~= 0 then
        local number = ffi.errno()
        if number == ESRCH then return is_gone() end
        return failed(number, 'Unable to %s %d signo %d', is_group and 'killpg' or 'kill', self.child, signo)
    end
    return true
end

function handle.signal(self, signo)
    local state = state_of(self, 'signal')
    if type(signo) == 'cdata' or not tonumber(signo) then misused('signal') end
    return send(check_open(state), tonumber(signo))
end

function handle.terminate(self) return send(check_open(state_of(self, 'terminate')), popen.signal.SIGTERM) end
function handle.kill(self) return send(check_open(state_of(self, 'kill')), popen.signal.SIGKILL) end

local function wait(self) return table.copy(await(nil, function() return status_of(self) end)) end
function handle.wait(self) return wait(check_open(state_of(self, 'wait'))) end

function handle.info(object)
    local self = check_open(state_of(object, 'info'))
    local info = {
        command = self.words, opts = table.copy(self.options), status = table.copy(status_of(self) or { state = 'alive' }),
    }
    if info.status.state == 'alive' then info.pid = self.child end
    for name in pairs(STREAMS) do
        if self.options[name] == 'pipe' then info[name] = self.fds[name] and 'open' or 'closed' end
    end
    return info
end

-- The descriptor of a stream that is a pipe of ours.
local function pipe_of(self, name)
    if self.options[name] ~= 'pipe' then
        errors.illegal_params('popen: handle does not support the requested IO operation')
    end
    local fd = self.fds[name]
    if not fd then errors.illegal_params('popen: attempt to operate on a closed file descriptor') end
    return fd
end

-- The error of a read or a write of `size` bytes.
local function failed_io(call, size, fd, number)
    return nil, errors.socket_error(number, ('%s(%d), called on fd %d'):format(call, size, fd))
end

function handle.read(self, opts)
    self = check_open(state_of(self, 'read'))
    opts = options_of(opts, 'read')
    local is_out, is_err = option(opts, 'stdout', 'boolean', 'read'), option(opts, 'stderr', 'boolean', 'read')
    local timeout = timeout_of(opts, 'read')
    if is_out and is_err then
        errors.illegal_params('popen: reading from both stdout and stderr at one call is not supported')
    end
    local fd = pipe_of(self, is_err and 'stderr' or 'stdout')
    local buffer = ffi.new('char[?]', READ_SIZE)
    local data, number = await(timeout, function()
        local count = tonumber(C.lycosa_popen_read(fd, buffer, READ_SIZE))
        if count >= 0 then return ffi.string(buffer, count) end
        local code = ffi.errno()
        if code ~= EAGAIN and code ~= EINTR then return false, code end
    end)
    if data then return data end
    if data == nil then return timed_out() end
    return failed_io('read', READ_SIZE, fd, number)
end

function handle.write(self, text, opts)
    self = state_of(self, 'write')
    if type(text) ~= 'string' then misused('write') end
    check_open(self)
    local timeout = timeout_of(options_of(opts, 'write'), 'write')
    local fd = pipe_of(self, 'stdin')
    local written = 0
    local bytes = ffi.cast('const char *', text)
    local done, number = await(timeout, function()
        while written < #text do
            local count = tonumber(C.lycosa_popen_write(fd, bytes + written, #text - written))
            if count < 0 then
                local code = ffi.errno()
                if code == EAGAIN then return nil end
                if code ~= EINTR then return false, code end
            else
                written = written + count
            end
        end
        return true
    end)
    if done then return true end
    if done == nil then return timed_out() end
    return failed_io('write', #text - written, fd, number or EPIPE)
end

function handle.shutdown(self, opts)
    self = check_open(state_of(self, 'shutdown'))
    opts = options_of(opts, 'shutdown')
    local wanted = {}
    for _, name in ipairs({ 'stdin', 'stdout', 'stderr' }) do
        if option(opts, name, 'boolean', 'shutdown') then wanted[#wanted + 1] = name end
    end
    if #wanted == 0 then errors.illegal_params('popen: neither stdin, stdout nor stderr is set') end
    for _, name in ipairs(wanted) do
        if self.options[name] ~= 'pipe' then
            errors.illegal_params('popen: handle does not support the requested IO operation')
        end
    end
    for _, name in ipairs(wanted) do close_stream(self, name) end
    return true
end

function handle.close(self)
    self = state_of(self, 'close')
    if self.closed then return true end
    for name in pairs(STREAMS) do close_stream(self, name) end
    if not self.options.keep_child and not status_of(self) then
        send(self, popen.signal.SIGKILL)
        wait(self)
    end
    self.closed = true
    return true
end

return popen
