-- The list of arguments of `call` and `eval`, of a connection and of the own instance.
return function(arguments, name, usage)
    if arguments ~= nil and type(arguments) ~= 'table' and type(arguments) ~= 'cdata' then
        error(('Use remote:%s(%s, {arg1, arg2, ...}, opts) instead of remote:%s(%s, arg1, arg2, ...)'):format(
            name, usage, name, usage), 3)
    end
    return arguments or {}
end
