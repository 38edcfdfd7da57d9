//! Methods of a part that its owner has too: each stands as its declaration, without a body.

/// Defines methods that call methods of a field with the same names.
macro_rules! forward {
    ($($field:ident).+:) => {};
    (
        $($field:ident).+:
        $(#[$about:meta])*
        $visibility:vis fn $name:ident(&mut $self:ident $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;
        $($more:tt)*
    ) => {
        $(#[$about])*
        $visibility fn $name(&mut $self $(, $argument: $kind)*) $(-> $result)? {
            $self.$($field).+.$name($($argument),*)
        }
        forward! { $($field).+: $($more)* }
    };
    (
        $($field:ident).+:
        $(#[$about:meta])*
        $visibility:vis fn $name:ident(&$self:ident $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;
        $($more:tt)*
    ) => {
        $(#[$about])*
        $visibility fn $name(&$self $(, $argument: $kind)*) $(-> $result)? {
            $self.$($field).+.$name($($argument),*)
        }
        forward! { $($field).+: $($more)* }
    };
}
