//! Projects: for admins.

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::project::{NewProject, NewProjectSpec, Project, ProjectSpec, RotateRequest};
use crate::{ClientError, ListPage};

/// Which projects to list.
#[derive(Debug, Clone, Default)]
pub struct ProjectFilter {
    /// Those whose name begins so.
    pub prefix: Option<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// Makes a project. Its secret is told this once.
    pub async fn create_project(&self, spec: &NewProjectSpec) -> Result<NewProject, ClientError> {
        self.ask(Question::post(Path::new("/v1/projects")).body(spec)).await
    }

    /// The project with this name.
    pub async fn project(&self, name: &str) -> Result<Project, ClientError> {
        self.ask(Question::get(at(name, ""))).await
    }

    /// Projects, by name.
    pub async fn projects(&self, filter: &ProjectFilter) -> Result<ListPage<Project>, ClientError> {
        let path = Path::new("/v1/projects")
            .with("prefix", filter.prefix.as_deref())
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }

    /// Changes what a project may have, and who is notified. What the text does not say is not limited.
    pub async fn put_project(
        &self,
        name: &str,
        spec: &ProjectSpec,
    ) -> Result<Project, ClientError> {
        self.ask(Question::put(at(name, ""), spec)).await
    }

    /// Lets a project's triggers fire again.
    pub async fn enable_project(&self, name: &str) -> Result<Project, ClientError> {
        self.ask(Question::post(at(name, "/enable"))).await
    }

    /// Lets none of a project's triggers fire.
    pub async fn disable_project(&self, name: &str) -> Result<Project, ClientError> {
        self.ask(Question::post(at(name, "/disable"))).await
    }

    /// Gives a project a new secret; the former one is used for a while longer. The new one is told this once.
    pub async fn rotate_project(
        &self,
        name: &str,
        request: &RotateRequest,
    ) -> Result<NewProject, ClientError> {
        self.ask(Question::post(at(name, "/rotate")).body(request)).await
    }
}

fn at(name: &str, rest: &str) -> Path {
    Path::of("projects", name, rest)
}
