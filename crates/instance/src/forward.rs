//! Methods of a part that its owner has too: each stands as its declaration, without a body.

/// Defines methods that call methods of a field, or of what a method without arguments returns, with the same names.
macro_rules! forward {
    ($($field:ident $(($($none:tt)?))?).+:) => {};
    (
        $($field:ident $(($($none:tt)?))?).+:
        $(#[$about:meta])*
        $vis:vis fn $name:ident(&mut $self:ident $(, $argument:ident: $kind:ty)* $(,)?) $(-> $result:ty)?;
        $($more:tt)*
    ) => {
        $(#[$about])*
        $vis fn $name(&mut $self $(, $argument: $kind)*) $(-> $result)? {
            $self.$($field $(($($none)?))?).+.$name($($argument),*)
        }
        forward! { $($field $(($($none)?))?).+: $($more)* }
    };
    (
        $($field:ident $(($($none:tt)?))?).+:
        $(#[$about:meta])*
        $vis:vis fn $name:ident(&$self:ident $(, $argument:ident: $kind:ty)* $(,)?) $(-> $result:ty)?;
        $($more:tt)*
    ) => {
        $(#[$about])*
        $vis fn $name(&$self $(, $argument: $kind)*) $(-> $result)? {
            $self.$($field $(($($none)?))?).+.$name($($argument),*)
        }
        forward! { $($field $(($($none)?))?).+: $($more)* }
    };
}
