-- trigger: lists of functions that run one after the other.
return require('lycosa.box.trigger')
