"""KCL's metrics in CloudWatch, by KCL's names: dashboards and alarms of an application outlive its move to efo."""
