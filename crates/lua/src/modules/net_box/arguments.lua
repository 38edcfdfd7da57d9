-- The list of arguments of `call` and `eval`, of a connection and of the own instance.
return function(arguments, name, usage)
    local is_list = type(arguments) == 'table' or (type(arguments) == 'cdata' and box.tuple.is(arguments))
    if arguments ~= nil and not is_list then
        error(('Use remote:%s(%s, {arg1, arg2, ...}, opts) instead of remote:%s(%s, arg1, arg2, ...)'):format(
            name, usage, name, usage), 1)
    end
    return arguments or {}
end
