-- The triggers of box.ctl.on_schema_init run once, when the system spaces are there.
io.stdout:setvbuf('line')
local events = {}
box.ctl.on_schema_init(function()
    table.insert(events, 'begun')
    box.space._space:on_replace(function(_, new)
        if new and new[1] >= 512 then table.insert(events, new[3]) end
    end)
end)
box.cfg{ log = 'init.log', wal_mode = 'none' }
box.schema.space.create('one')
box.cfg{ read_only = false }
box.schema.space.create('two')
print(table.concat(events, ' '))
os.exit(0)
