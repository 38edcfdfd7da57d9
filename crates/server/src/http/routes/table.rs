//! The table of all routes, and their router.

use axum::http::Uri;
use axum::{Extension, Router, middleware};

use super::{Route, Table, administer, leases, metrics, overview, probes, steer, tag, tasks, token, tubes};
use crate::http::problem::{Kind, Problem};
use crate::http::{Shared, page};

/// All routes.
pub(crate) const TABLE: &[&[Route]] = &[
    probes::ROUTES,
    token::ROUTES,
    metrics::ROUTES,
    tubes::ROUTES,
    tasks::ROUTES,
    leases::ROUTES,
    steer::ROUTES,
    administer::ROUTES,
    overview::ROUTES,
];

/// The router of all routes.
pub(crate) fn router(shared: Shared) -> Router {
    let routes = TABLE.iter().copied().flatten();
    let router = routes.fold(Router::new(), |router, route| router.route(route.path, (route.attach)()));
    let router = router.layer(middleware::from_fn(tag));
    let router = router.layer(middleware::from_fn_with_state(shared.clone(), probes::until_started));
    let router = router.layer(Extension(Table(TABLE)));
    page::attach(router).fallback(no_such_path).method_not_allowed_fallback(wrong_method).with_state(shared)
}

async fn no_such_path(uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchPath, format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> Problem {
    Problem::new(Kind::WrongMethod, format!("see Allow for the methods of {}", uri.path()))
}
